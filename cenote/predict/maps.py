"""Predict one map per image with a saved model."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..data.with_size import WithSize
from ..metrics import prepare_maps
from ..metrics.arrays import Array
from ..models import PooledModel
from ..models.class_map import ForwardPass


@dataclass(frozen=True)
class MapPredictor:
    """A model, the kind of map it predicts, the image size and the batch size."""

    model: PooledModel
    kind: str
    size: int
    batch: int = 32
    workers: int = 0

    def transform(self) -> WithSize:
        """Resize to a square without cropping; also return the original size."""
        return WithSize(self.model.backbone.preprocessing.whole((self.size, self.size)))

    def predict(self, images: Tensor) -> ForwardPass:
        return ForwardPass(self.model, images.to(next(self.model.parameters()).device), self.kind)

    def scores(self, raw: Tensor) -> Array:
        """Resize raw maps (B, h, w) to (B, size, size) and scale them to [0, 1]."""
        maps: Array = prepare_maps(raw.float().cpu(), self.size).numpy()
        return maps
