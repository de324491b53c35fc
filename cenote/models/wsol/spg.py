from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...backbones import Features
from ...options import check_number
from ..cam import target_cam
from ..head import Criterion, PoolAndHead, WsolMethod
from .acol import Convolutions

HIDDEN = 512  # channels of the two branches
# Below the first value a position is background, above the second it is object.
SEEDS, GUIDANCE = (0.05, 0.5), (0.1, 0.7)


class SelfProducedGuidance(WsolMethod):
    """Masks of object and background that the network makes itself guide its features.

    Zhang et al., Self-produced Guidance for Weakly-supervised Object Localization, ECCV 2018. The
    classifier's map of the true class, from 0 to 1, gives seeds, from which branch B learns object
    and background on the backbone's features; what B is sure of guides branch C on the features of
    the classifier, two 3 x 3 convolutions of `width` channels. B and C are for training alone. As
    published B has two levels, of earlier stages; here it has one, of the last features.
    """

    needs_class = True

    def __init__(self, model: PoolAndHead, width: int = 512) -> None:
        super().__init__(model)
        check_number("width", width, whole=True, least=1)
        assert model.pool is not None
        dim = model.pool.in_dim
        self.convolutions = Convolutions(dim, width)
        self.b, self.c = branch(dim), branch(dim)

    def neck(self, features: Features) -> Features:
        return self.convolutions(features)

    def loss(
        self,
        model: PoolAndHead,
        features: Features,
        labels: Tensor,
        criterion: Criterion,
        rng: torch.Generator,
    ) -> Tensor:
        attention = target_cam(model, features, labels)  # (B, 1, H, W)
        b = self.b(as_map(features))
        c = self.c(as_map(self.neck(features)))
        guided = guided_loss(b, attention, SEEDS) + guided_loss(c, b.detach().sigmoid(), GUIDANCE)
        return criterion(model.classify(features), labels) + guided


def branch(dim: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(dim, HIDDEN, 3, padding=1), nn.ReLU(), nn.Conv2d(HIDDEN, 1, 1))


def as_map(features: Features) -> Tensor:
    return features.tokens.transpose(1, 2).unflatten(2, features.grid)  # (B, D, H, W)


def guided_loss(logits: Tensor, guide: Tensor, thresholds: tuple[float, float]) -> Tensor:
    """Return the binary cross-entropy at the positions where the guide, from 0 to 1, is sure."""
    low, high = thresholds
    sure = (guide < low) | (guide > high)
    losses = F.binary_cross_entropy_with_logits(logits, (guide > high).to(logits), reduction="none")
    return (losses * sure).sum() / sure.sum().clamp_min(1)
