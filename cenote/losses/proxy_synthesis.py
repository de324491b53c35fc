"""Proxy Synthesis (Gu et al., 2021), a rival of Metrix: two classes mixed are a class of their own,
proxy included.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..options import check_number
from ..unit import unit
from .metric import Memory, MetricLoss
from .metrix import Mixable, takes_soft_labels
from .mixing import at_most, beta_draws


@dataclass(frozen=True)
class ProxySynthesis:
    """Each embedding is mixed with one of another class, and their proxies with the same λ."""

    alpha: float = 0.4  # as published
    needs_images = False
    needs_maps = False

    def __post_init__(self) -> None:
        check_number("alpha of Proxy Synthesis", self.alpha, above=0)

    def __call__(
        self,
        loss: MetricLoss,
        batch: Mixable,
        generator: torch.Generator | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """The loss of the batch and the made-up classes together. It takes no memory."""
        generic = takes_soft_labels(loss, "Proxy Synthesis")
        if not generic.proxied or memory is not None:
            raise ValueError(
                "Proxy Synthesis mixes proxies: it takes a loss that has them, and no memory"
            )
        with torch.autocast(batch.z.device.type, enabled=False):
            generic.check(batch.z, batch.labels)
            x, labels = unit(batch.z), batch.labels
            proxies = unit(generic.proxies).to(x).unflatten(0, (generic.classes, -1))  # (C, K, D)
            b, c = at_most(labels[:, None] != labels, 1, generator).nonzero(as_tuple=True)
            lam = beta_draws(self.alpha, (len(b), 1), generator, x)
            of = proxies.index_select(0, labels[b]), proxies.index_select(0, labels[c])
            synthetic = unit(lam[..., None] * of[0] + (1 - lam[..., None]) * of[1])  # (M, K, D)
            mixed = unit(lam * x.index_select(0, b) + (1 - lam) * x.index_select(0, c))
            proxies, x = torch.cat([proxies, synthetic]), torch.cat([x, mixed])
            numbers = torch.arange(len(proxies), device=labels.device)
            labels = torch.cat([labels, numbers[generic.classes :]])
            s = generic.of_centres(x @ proxies.flatten(0, 1).T)  # (B + M, C + M)
            same = labels[:, None] == numbers
            return (
                generic.judge(s.T, same.T)
                if generic.form.anchor == "proxy"
                else generic.judge(s, same)
            )
