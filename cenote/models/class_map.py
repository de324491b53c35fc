"""One forward pass, and the map that it gives for a class of each image."""

from __future__ import annotations

import torch
from torch import Tensor

from ..backbones import Features
from .cam import judges_each_vector, map_of_features
from .pooled import PooledModel


class ForwardPass:
    """What a model made of images, which run through its backbone once where the map allows it."""

    def __init__(
        self, model: PooledModel, images: Tensor, kind: str, features: Features | None = None
    ) -> None:
        self.model, self.images, self.kind = model, images, kind
        self.features = features or model.features(images)
        self.logits: Tensor | None = None  # (B, classes)
        if model.head is not None:
            self.logits = model.classify(self.features)

    def maps(self, classes: Tensor) -> Tensor:
        """(B, H, W) for one class each; several maps of one image are averaged."""
        if self.kind in ("pool", "cam") and self.model.pool is not None:
            return map_of_features(self.model, self.features, classes, self.kind)
        if self.kind in ("cam", "gradcam"):
            return self.model.attend(self.images, self.kind, classes=classes).mean(1)
        return self.model.attend(self.images, self.kind).mean(1)


def resolve_map_kind(model: PooledModel, kind: str, size: int) -> str:
    """What "auto" comes to. A model without such a map is refused before any work: it is tried on
    an empty image.

    So is an image that is smaller than one place of the map: convolutions take it, and see nothing
    in it.
    """
    try:
        min_size = round(max(model.backbone.stride()))
    except ValueError:  # unknown
        min_size = 1
    if size < min_size:
        raise ValueError(
            f"size is at least {min_size} pixels, one place of the map of this model, got {size}"
        )
    if kind == "auto":
        kind = next(iter(model.map_kinds()), kind)
    empty = torch.zeros(1, 3, size, size, device=next(model.parameters()).device)
    with torch.no_grad():
        ForwardPass(model, empty, kind).maps(torch.zeros(1, dtype=torch.long, device=empty.device))
    return kind


def depends_on_class(model: PooledModel, kind: str) -> bool:
    """Whether two classes of one image may have different maps.

    An object map is that of a class if images may have several: a class activation map selects.
    """
    if kind == "object":
        return model.multi_label and "cam" in model.map_kinds()
    return kind in ("cam", "gradcam") or (kind == "pool" and judges_each_vector(model))
