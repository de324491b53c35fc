from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...backbones import Features
from ...options import check_number
from ..cam import minmax
from ..head import Criterion, PoolAndHead, WsolMethod
from .adl import importance

EMBEDDING = 128  # channels of the vectors that are compared


class InSampleContrast(WsolMethod):
    """The less active part of an object has to resemble the object, and not its background.

    Ki et al., In-sample Contrastive Learning and Consistent Attention for Weakly Supervised Object
    Localization, ACCV 2020. Attention is the mean over the channels of a non-local block, here from
    0 to 1. Its foreground, the foreground without the most active positions, and the background
    are embedded: the second is the anchor of a triplet loss, the others positive and negative. The
    attention of an earlier block is drawn to that of a later one. The classifier sees the later
    features without their most active positions and without the background, or weighed by
    `importance`, as in `AttentionDropout`.

    Only the abstract was at hand. The formulas and numbers are ours: the margin between unit vectors, the
    mean squared difference of attentions, equal weights of the three losses, and all options; that
    importance is an alternative to dropping is from memory. Published blocks stand behind several
    stages; here both are behind the last one, which must end with a ReLU.
    """

    def __init__(
        self,
        model: PoolAndHead,
        drop_rate: float = 0.75,
        threshold: float = 0.9,
        foreground: float = 0.5,
        background: float = 0.2,
        margin: float = 0.5,
    ) -> None:
        super().__init__(model)
        check_number("drop_rate", drop_rate, least=0, most=1)
        check_number("threshold", threshold, least=0, most=1)
        check_number("foreground", foreground, least=0, most=threshold)
        check_number("background", background, above=0, most=foreground)
        check_number("margin", margin, above=0)
        self.drop_rate, self.threshold = drop_rate, threshold
        self.foreground, self.background, self.margin = foreground, background, margin
        assert model.pool is not None
        self.earlier, self.later = NonLocal(model.pool.in_dim), NonLocal(model.pool.in_dim)
        self.embedding = nn.Linear(model.pool.in_dim, EMBEDDING)

    def neck(self, features: Features) -> Features:
        return features._replace(tokens=self.later(self.earlier(features.tokens)))

    def loss(
        self,
        model: PoolAndHead,
        features: Features,
        labels: Tensor,
        criterion: Criterion,
        rng: torch.Generator,
    ) -> Tensor:
        assert model.head is not None
        earlier = self.earlier(features.tokens)
        x = self.later(earlier)  # (B, N, D)
        a = attention(x)
        drop = float(torch.rand((), generator=rng)) < self.drop_rate
        weights = self.drop_mask(a) if drop else importance(x)
        u, _ = model.pool_prepared(features._replace(tokens=x * weights))
        loss = criterion(model.head(model.refine(u)), labels)
        return loss + self.contrast(x, a) + F.mse_loss(attention(earlier), a.detach())

    def drop_mask(self, a: Tensor) -> Tensor:
        """(B, N, 1) -> (B, N, 1): 0 at the most active positions and in the background."""
        return ((a < self.threshold) & (a >= self.background)).to(a)

    def contrast(self, x: Tensor, a: Tensor) -> Tensor:
        """Return the triplet loss of the images whose foreground has less active positions."""
        foreground = a > self.foreground
        rest = foreground & (a < self.threshold)
        anchor, positive, negative = (
            F.normalize(self.embedding(mean_of(x, region)), dim=-1)
            for region in (rest, foreground, a < self.background)
        )
        losses = F.triplet_margin_loss(anchor, positive, negative, self.margin, reduction="none")
        usable = rest.any(1)[:, 0]  # (B,)
        return (losses * usable).sum() / usable.sum().clamp_min(1)


class NonLocal(nn.Module):
    """Add to each position (B, N, D) what similar ones have: Wang et al., CVPR 2018.

    It begins as the identity.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        width = max(dim // 2, 1)
        self.theta, self.phi, self.g = (nn.Linear(dim, width) for _ in range(3))
        self.out = nn.Linear(width, dim)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.theta(x), self.phi(x), self.g(x)
        y: Tensor = x + self.out(F.scaled_dot_product_attention(q, k, v, scale=1.0))
        return y


def attention(x: Tensor) -> Tensor:
    """(B, N, D) -> (B, N, 1): the mean over channels, from 0 to 1 in each image."""
    return minmax(x.mean(-1, keepdim=True))


def mean_of(x: Tensor, region: Tensor) -> Tensor:
    """(B, N, D), (B, N, 1) -> (B, D): the mean over the positions of a region, or 0."""
    return (x * region).sum(1) / region.sum(1).clamp_min(1)
