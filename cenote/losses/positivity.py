"""Positivity [Dissertation Eqs. 2.14-2.23]: how often positive-negative mixtures are pulled, by λ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..unit import unit
from .forms import FORMS, Settings, softplus
from .generic import log_sum
from .mixing import beta_draws, mixed_similarity, rows_of


class Positivity(NamedTuple):
    lam: Tensor  # (bins,) the middle of each
    # share of mixtures whose derivative is not positive [Dissertation Eq. 2.16], NaN in an empty bin
    empirical: Tensor
    theoretical: Tensor  # F_λ at the threshold [Dissertation Eq. 2.23]
    total: Tensor  # mixtures in a bin


class Mixtures(NamedTuple):
    """Each anchor's positive-negative mixtures, (A, V) each."""

    similarity: Tensor
    lam: Tensor
    mask: Tensor


def positivity(
    batches: Sequence[Mixtures], settings: Settings | None = None, bins: int = 20
) -> Positivity:
    """Return the curve of multi-similarity [Dissertation Eq. 2.13] over mixtures of batches."""
    rows = []  # empirical, theoretical, λ of each mixture
    for batch in batches:
        columns = (*positive(batch, settings), batch.lam)
        rows.append(torch.stack([column[batch.mask].double() for column in columns]))
    empirical, theoretical, lam = torch.cat(rows, 1)
    place = (lam * bins).long().clamp(0, bins - 1)
    count = torch.bincount(place, minlength=bins)
    shares = [torch.bincount(place, t, minlength=bins) / count for t in (empirical, theoretical)]
    middle = (torch.arange(bins, dtype=torch.float64, device=lam.device) + 0.5) / bins
    return Positivity(middle, shares[0], shares[1], count)


def positive(mixtures: Mixtures, settings: Settings | None = None) -> tuple[Tensor, Tensor]:
    """Return whether each mixture acts as positive, (A, V) bool, by the derivative and the threshold."""
    s, lam, mask = (t.double() for t in mixtures)
    o = {**FORMS["multi-similarity"].settings, **(settings or {})}
    t = s - o["m"]
    pull, push = -o["beta"] * t, o["gamma"] * t
    ups, downs = lam * mask, (1 - lam) * mask
    # [Dissertation Eq. 2.16] with all of V(a) in the denominators, both sides as logarithms: no
    # e^(γt) is formed.
    up = lam.log() + pull - softplus(log_sum(pull, ups))[:, None]
    down = (-lam).log1p() + push - softplus(log_sum(push, downs))[:, None]
    # [Dissertation Eq. 2.22]
    return down <= up, s <= lam.logit() / (o["beta"] + o["gamma"]) + o["m"]


@torch.no_grad()
def mixtures_of(
    z: Tensor, labels: Tensor, alpha: float = 2.0, generator: torch.Generator | None = None
) -> Mixtures:
    """Return all positive-negative mixtures of embeddings in a batch, as Metrix/embed meets them."""
    x = unit(z)
    same = labels[:, None] == labels
    which, is_pair = rows_of(same & ~torch.eye(len(x), dtype=torch.bool, device=x.device))
    lam = beta_draws(alpha, (len(x), len(x)), generator, x)
    s = mixed_similarity(x, x, x, which, lam)
    mask = is_pair[..., None] & ~same[:, None]
    return Mixtures(s.flatten(1), lam[which].flatten(1), mask.flatten(1))
