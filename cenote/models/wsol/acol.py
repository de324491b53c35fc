from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from ...backbones import Features
from ...options import check_number
from ..cam import target_cam
from ..head import Criterion, PoolAndHead, WsolMethod


class AdversarialErasing(WsolMethod):
    """Two classifiers, of which the second sees features without what the first one uses.

    Zhang et al., Adversarial Complementary Learning for Weakly Supervised Object Localization, CVPR
    2018. Erased are the positions where the first one's map of the true class, from 0 to 1, is
    above `threshold`; the losses of both are added. The map is the larger of both, the prediction
    that of the first. With a `width` each classifier begins with two 3 x 3 convolutions, as
    published (of 1024 channels; here the second one returns to those of the features).
    """

    needs_class = True

    def __init__(self, model: PoolAndHead, threshold: float = 0.6, width: int = 0) -> None:
        super().__init__(model)
        check_number("threshold", threshold, least=0, most=1)
        check_number("width", width, whole=True, least=0)
        assert model.pool is not None and model.head is not None
        self.threshold = threshold
        self.convolutions, self.second_convolutions = (
            Convolutions(model.pool.in_dim, width) if width else nn.Identity() for _ in range(2)
        )
        self.second = copy_classifier(model)

    def neck(self, features: Features) -> Features:
        return self.convolutions(features)

    def branches(
        self, model: PoolAndHead, features: Features
    ) -> list[tuple[PoolAndHead, Features]]:
        return [(model, features), (self.second, self.second_convolutions(features))]

    def loss(
        self,
        model: PoolAndHead,
        features: Features,
        labels: Tensor,
        criterion: Criterion,
        rng: torch.Generator,
    ) -> Tensor:
        first = criterion(model.classify(features), labels)
        erased = target_cam(model, features, labels).flatten(1) > self.threshold  # (B, N)
        rest = features._replace(tokens=features.tokens.masked_fill(erased[..., None], 0))
        logits = self.second.classify(self.second_convolutions(rest))
        return first + criterion(logits, labels)


class Convolutions(nn.Module):
    """Two 3 x 3 convolutions over the grid, each with a ReLU: D -> width -> D channels."""

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(dim, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, dim, 3, padding=1),
            nn.ReLU(),
        )

    def forward(self, features: Features) -> Features:
        x = features.tokens.transpose(1, 2).unflatten(2, features.grid)  # (B, D, H, W)
        return features._replace(tokens=self.layers(x).flatten(2).transpose(1, 2))


def copy_classifier(model: PoolAndHead) -> PoolAndHead:
    """Return another classifier like that of the model: a copy of its pool, and a new head."""
    assert model.head is not None
    second = PoolAndHead()
    second.pool, second.after = copy.deepcopy(model.pool), copy.deepcopy(model.after)
    second.embedding, second.tokens = copy.deepcopy(model.embedding), model.tokens
    second.head, second.wsol = copy.deepcopy(model.head), None
    second.head.linear.reset_parameters()
    return second
