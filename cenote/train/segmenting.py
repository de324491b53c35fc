"""The task of linear segmentation: a 1x1 layer learns the class of every pixel from frozen patch features."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..backbones import Backbone, Features
from ..data import Dataset
from ..data.loading import load
from ..predict.distributed import rank, world
from ..predict.feature_batches import FeatureBatch, FeatureBatches
from ..predict.feature_cache import CachedFeatures
from .config import OptimizationConfig
from .engine import Task
from .pixel_labels import IGNORE, PixelLabels
from .state import TrainState


class LinearSegmenter(nn.Module):
    """Features -> (B, classes, size, size): a 1x1 layer, perhaps behind a BatchNorm, then bilinear upsampling."""

    def __init__(self, dim: int, classes: int, norm: bool = False) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(dim) if norm else nn.Identity()
        self.layer = nn.Conv2d(dim, classes, 1)

    def forward(self, features: Features, size: int) -> Tensor:
        x = features.tokens.transpose(1, 2).unflatten(2, features.grid)  # (B, D, H, W)
        logits = self.layer(self.norm(x))  # (B, classes, H, W)
        return F.interpolate(logits, (size, size), mode="bilinear", align_corners=False)


class Part(NamedTuple):
    features: Features
    labels: Tensor  # (B, size, size)

    def __len__(self) -> int:
        return len(self.labels)


class Side:
    """The images of one split, and their features: from the cache, or from the backbone whenever they are asked for.

    `source` is what the cache holds of them, or the transform that readies them for the backbone.
    """

    def __init__(
        self, dataset: Dataset, source: Any, settings: OptimizationConfig, shuffle: bool
    ) -> None:
        self.loader: Any
        if isinstance(source, CachedFeatures):
            self.cached, self.dataset, self.bad = True, source.dataset, list(source.bad)
            self.loader = FeatureBatches(source, settings.batch, shuffle, settings.seed)
            return
        self.cached, self.dataset, self.bad = False, dataset, []
        share = max(min(settings.batch, len(dataset)) // world(), 1)
        several: dict[str, Any] = {"workers": settings.workers, "rank": rank(), "world": world()}
        several |= {"shuffle": shuffle, "seed": settings.seed, "drop_last": shuffle and world() > 1}
        self.loader = load(dataset, source, share, **several)


class Segmenting(Task):
    """A task: cross-entropy over the pixels that count. Nothing is chosen: the last weights are the result."""

    def __init__(
        self,
        backbone: Backbone,
        labels: PixelLabels,
        train: Side,
        settings: OptimizationConfig,
        norm: bool,
        device: torch.device,
    ) -> None:
        self.backbone, self.labels, self.side, self.device = (
            backbone.to(device).eval(),
            labels,
            train,
            device,
        )
        self.loader = train.loader
        torch.manual_seed(settings.seed)
        module = LinearSegmenter(backbone.dim, len(labels.names), norm).to(device)
        self.states = [TrainState("linear", module, settings)]

    def prepare(self, batch: Any, parts: int) -> list[Part]:
        part = self.part(batch, self.side.dataset)
        if part is None:
            return []
        tokens, grid, _ = part.features
        pairs = zip(tokens.chunk(parts), part.labels.chunk(parts), strict=True)
        return [Part(Features(x, grid), y) for x, y in pairs]

    @torch.no_grad()
    def part(self, batch: Any, dataset: Dataset) -> Part | None:
        cached = isinstance(batch, FeatureBatch)
        which = batch.indices if cached else batch.indices.tolist()
        if not len(which):
            return None
        tokens, grid, _ = batch.features if cached else self.backbone(batch.images.to(self.device))
        labels = torch.stack([self.labels.of(dataset, int(i)) for i in which])
        return Part(Features(tokens.to(self.device), grid), labels.to(self.device))

    def loss(self, module: nn.Module, part: Part) -> Tensor:
        logits = module(part.features, self.labels.size)
        # Not the mean: where no pixel counts, that is not a number.
        total = F.cross_entropy(logits, part.labels, ignore_index=IGNORE, reduction="sum")
        return total / (part.labels != IGNORE).sum().clamp_min(1)

    def validate(self) -> dict[str, dict[str, float]]:
        return {}

    def describe(self, batch: Any) -> str:
        return ", ".join(str(self.side.dataset.path(int(i))) for i in list(batch.indices)[:3])
