"""MoCHi (Kalantidis et al., 2020), a rival of Metrix: mixtures of the hardest negatives, always
negative.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..options import check_number, check_words
from ..unit import unit
from .metric import Memory, MetricLoss
from .metrix import Mixable, takes_soft_labels


@dataclass(frozen=True)
class MoCHi:
    """Each anchor meets `synthetic` mixtures of two of its `hardest` negatives, and as many of one
    with itself.
    """

    pairs: tuple[str, ...] = ("neg-neg", "anc-neg")
    hardest: int = 100
    synthetic: int = 100
    needs_images = False
    needs_maps = False

    def __post_init__(self) -> None:
        check_words("pairs of MoCHi", self.pairs, ("neg-neg", "anc-neg"))
        check_number("hardest of MoCHi", self.hardest, whole=True, least=1)
        check_number("synthetic of MoCHi", self.synthetic, whole=True, least=1)

    def __call__(
        self,
        loss: MetricLoss,
        batch: Mixable,
        generator: torch.Generator | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """The loss with mixed negatives among the others. It takes no memory."""
        generic = takes_soft_labels(loss, "MoCHi")
        if generic.proxied or memory is not None:
            raise ValueError(
                "MoCHi mixes the negatives of a batch: it takes no proxies and no memory"
            )
        with torch.autocast(batch.z.device.type, enabled=False):
            generic.check(batch.z, batch.labels)
            x, labels = unit(batch.z), batch.labels
            g, same = x @ x.T, labels[:, None] == labels
            similarities, masks = [g], [~torch.eye(len(x), dtype=torch.bool, device=x.device)]
            order = (
                g.detach()
                .masked_fill(same, -torch.inf)
                .sort(dim=1, descending=True, stable=True)
                .indices
            )
            count = (~same).sum(1, keepdim=True).clamp(max=self.hardest)  # (B, 1)
            for pairs in self.pairs:
                # A place among the hardest, (B, S); an anchor without negatives points at anything
                # and is masked.
                b, c = (
                    order.gather(1, (self._uniform(x, generator) * count).long()) for _ in range(2)
                )
                lam = self._uniform(x, generator)
                if pairs == "anc-neg":
                    b = torch.arange(len(x), device=x.device)[:, None].expand_as(c)
                    lam = lam / 2  # less of the anchor than of the negative
                similarities.append(pair_similarity(g, b, c, lam))
                masks.append((count > 0).expand_as(c))
            s, mask = torch.cat(similarities, 1), torch.cat(masks, 1)
            label = torch.zeros_like(s)
            label[:, : len(x)] = same.to(s)
            return generic.judge(s, label, mask)

    def _uniform(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        home = "cpu" if generator is None else generator.device
        return torch.rand(len(x), self.synthetic, generator=generator, device=home).to(x)


def pair_similarity(g: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
    """Cosines of each row a with mix(b, c), all (A, S), from the Gram matrix of unit vectors."""
    between = g.flatten().gather(0, (b * g.shape[1] + c).flatten()).view_as(b)
    # With itself an example has cosine 1, which rounding must not turn into a gradient.
    squares = lam**2 + (1 - lam) ** 2 + 2 * lam * (1 - lam) * between
    return (lam * g.gather(1, b) + (1 - lam) * g.gather(1, c)) / squares.clamp(min=1e-12).sqrt()
