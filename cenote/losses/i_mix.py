"""i-Mix (Lee et al. 2021), a rival of Metrix: the anchor is a mixed image, and two losses are
mixed, not two labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..options import check_number
from ..unit import unit
from .generic import generic_terms, per_anchor
from .metric import GenericLoss, Memory, MetricLoss
from .metrix import Mixable, takes_soft_labels
from .mixing import at_most, beta_draws, mixed_vectors


@dataclass(frozen=True)
class IMix:
    """Each image with one of another class, as Dissertation Table 2.4 compares it; `alpha` as
    published.
    """

    weight: float = 0.4
    alpha: float = 1.0
    needs_images = True
    needs_maps = False

    def __post_init__(self) -> None:
        check_number("weight of i-Mix", self.weight, least=0)
        check_number("alpha of i-Mix", self.alpha, above=0)

    def __call__(
        self,
        loss: MetricLoss,
        batch: Mixable,
        generator: torch.Generator | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        generic = takes_soft_labels(loss, "i-Mix")
        if generic.form.anchor == "proxy":
            raise ValueError(
                f"i-Mix mixes anchors, and those of '{loss.name}' are proxies: take another loss"
            )
        if batch.images is None or batch.network is None:
            raise ValueError("i-Mix mixes images: it needs the images of the batch and the network")
        clean: Tensor = loss(batch.z, batch.labels, memory)
        labels = batch.labels
        b, c = at_most(labels[:, None] != labels, 1, generator).nonzero(as_tuple=True)
        if not len(b):
            return clean
        lam = beta_draws(self.alpha, (len(b),), generator, unit(batch.z))
        v = mixed_vectors(batch.images, b, c, lam, batch.network, len(batch.z), again=False)
        with torch.autocast(v.device.type, enabled=False):
            first, second = (
                _each(generic, unit(v), unit(batch.z), labels[rows], labels) for rows in (b, c)
            )
        return clean + self.weight * (lam * first + (1 - lam) * second).mean()


def _each(loss: GenericLoss, v: Tensor, x: Tensor, own: Tensor, labels: Tensor) -> Tensor:
    """(M,) losses of anchors v if they were of the classes `own`."""
    if loss.form.other == "example":
        s, of = v @ x.T, labels
    else:
        s, of = loss.to_classes(v), torch.arange(loss.classes, device=labels.device)
    terms = generic_terms(s, own[:, None] == of, loss.form, loss.settings)
    return per_anchor(terms, loss.form, loss.settings)
