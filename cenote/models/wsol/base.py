"""The contract of a method of weakly supervised localization: it overrides what it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from ...backbones import Features
from ...metrics import prepare_maps

if TYPE_CHECKING:
    from ..head import PoolAndHead

Criterion = Callable[[Tensor, Tensor], Tensor]  # logits, labels -> mean loss


class WsolMethod(nn.Module):
    """A part of a model beside pool and head, which trains and is saved with it.

    In training a method changes the images (`images`) or the loss (`loss`); always, the features
    before they are pooled (`neck`); of class activation maps, the weights (`class_weights`), the
    classifiers whose maps are joined (`branches`), or how maps are scaled to [0, 1] (`scores`).
    """

    name: ClassVar[str] = ""  # set by the registry
    pool: ClassVar[str] = "gap"  # if none is given
    changes_images: ClassVar[bool] = False  # then features cannot be computed once
    needs_class: ClassVar[bool] = False  # one for each image, to train
    needs_cam: ClassVar[bool] = True

    def __init__(self, model: PoolAndHead) -> None:
        super().__init__()
        self.options: dict[str, Any] = {}  # that were given, to create the method again

    def images(self, images: Tensor, rng: torch.Generator) -> Tensor:
        """Change images (B, 3, H, W) of a training step; 0 is the mean colour."""
        return images

    def neck(self, features: Features) -> Features:
        """Change the features that are pooled, in training and afterwards."""
        return features

    def loss(
        self,
        model: PoolAndHead,
        features: Features,
        labels: Tensor,
        criterion: Criterion,
        rng: torch.Generator,
    ) -> Tensor:
        """Return the loss of a training step from the features of the backbone."""
        return criterion(model.classify(features), labels)

    def class_weights(self, w: Tensor) -> Tensor:
        """Change the weights (B, D) of each image's class for its class activation map."""
        return w

    def branches(
        self, model: PoolAndHead, features: Features
    ) -> list[tuple[PoolAndHead, Features]]:
        """Return the classifiers with their features; of several the largest map counts."""
        return [(model, features)]

    def scores(self, maps: Tensor, size: int) -> Tensor:
        """Resize class activation maps (..., h, w) to (..., size, size) and scale them to [0, 1]."""
        return prepare_maps(maps, size)


def target_classes(labels: Tensor) -> Tensor:
    """Return the class (B,) of each image; of mixed labels (B, classes) the largest."""
    return labels.argmax(1) if labels.ndim == 2 else labels
