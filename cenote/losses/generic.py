"""One loss for all [Dissertation Eqs. 2.3, 2.7, 2.9]: similarities and soft labels in, loss out."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..options import check_names
from ..unit import wide
from .forms import Form, Settings, form_named


class Terms(NamedTuple):
    """The terms σ⁺ and σ⁻ of each anchor, (A,), before τ; 0 where it has no positive or negative."""

    pos: Tensor
    neg: Tensor
    has_pos: Tensor
    has_neg: Tensor


def generic_loss(
    similarity: Tensor,
    label: Tensor,
    form: Form | str,
    settings: Settings | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the mean over anchors for cosines (A, N) and labels (A, N) in [0, 1].

    `mask` (A, N) says which are compared. An anchor without examples has the loss 0. In the forms
    with -log an anchor without a positive does not count. With proxies as anchors the positive
    term is a mean over the proxies that have a positive, the negative term over all proxies, as
    Proxy Anchor published.
    """
    if isinstance(form, str):
        form = form_named(form)
    settings = settings or {}
    check_names(form.title, settings, form.settings)
    return mean_loss(similarity, label, form, {**form.settings, **settings}, mask)


def mean_loss(
    similarity: Tensor, label: Tensor, form: Form, settings: Settings, mask: Tensor | None = None
) -> Tensor:
    """Return the same for all settings of a form."""
    terms = generic_terms(similarity, label, form, settings, mask)
    if form.anchor == "proxy":
        return _mean(terms.pos, terms.has_pos) + _mean(terms.neg, torch.ones_like(terms.has_neg))
    each = per_anchor(terms, form, settings)
    return _mean(each, _counts(terms, form))


def per_anchor(terms: Terms, form: Form, settings: Settings) -> Tensor:
    """Return τ(σ⁺ + σ⁻), (A,); 0 for an anchor that lacks what the form needs."""
    each = form.tau.of(terms.pos + terms.neg, settings)
    return each.masked_fill(~_counts(terms, form), 0)


def generic_terms(
    similarity: Tensor, label: Tensor, form: Form, settings: Settings, mask: Tensor | None = None
) -> Terms:
    """Return the two terms of each anchor.

    Always in float32 or wider: e^(γ(s-m)) at γ = 75 leaves nothing of a half float.
    """
    shapes = [tuple(t.shape) for t in (similarity, label, mask) if t is not None]
    if similarity.ndim != 2 or len(set(shapes)) > 1:
        raise ValueError(f"similarities, labels and mask are (anchors, examples), got {shapes}")
    with torch.autocast(similarity.device.type, enabled=False):
        s = wide(similarity)
        y = label.to(s.dtype)
        weight_pos, weight_neg = y, 1 - y
        if mask is not None:
            weight_pos, weight_neg = weight_pos * mask, weight_neg * mask
        has_pos, has_neg = (weight_pos > 0).any(1), (weight_neg > 0).any(1)
        pos, neg = form.rho_pos.of(s, settings), form.rho_neg.of(s, settings)
        if form.additive:
            pos, neg = (weight_pos * pos).sum(1), (weight_neg * neg).sum(1)
        else:
            pos, neg = log_sum(pos, weight_pos), log_sum(neg, weight_neg)
        if form.together:
            neg, has_neg = torch.logaddexp(pos, neg), has_pos | has_neg
        pos = form.sigma_pos.of(pos, settings).masked_fill(~has_pos, 0)
        neg = form.sigma_neg.of(neg, settings).masked_fill(~has_neg, 0)
    return Terms(pos, neg, has_pos, has_neg)


def log_sum(z: Tensor, weight: Tensor) -> Tensor:
    """Return log Σ w e^z over the last dimension.

    Where all weights are 0 it is very small, without a gradient. A plain logsumexp(z + log w) would
    give NaN gradients there, from the difference of two infinities.
    """
    nothing = torch.finfo(z.dtype).min / 4
    some = weight > 0
    total = torch.logsumexp(z + weight.log().masked_fill(~some, nothing), -1)
    return torch.where(some.any(-1), total, nothing)


def _counts(terms: Terms, form: Form) -> Tensor:
    if form.needs_positive:
        return terms.has_pos & terms.has_neg
    return torch.ones_like(terms.has_pos)


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    return values.masked_fill(~counted, 0).sum() / counted.sum().clamp(min=1)
