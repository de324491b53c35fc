"""Attention maps of the candidates on uncropped images, and how well boxes fit them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...data import Dataset
from ...data.ground_truth import clip_boxes, evenly_spaced, own_boxes
from ...data.loading import load
from ...metrics import BoxAccuracy, prepare_maps
from ...metrics.box_accuracy import CentredBox
from ...models.cam import map_of_features
from ...models.frozen import FrozenBackbone, PooledHead
from ...predict.feature_cache import cached_features

BATCH = 64
# Maps are looked at with this factor of the training size, if the backbone takes other sizes: 448
# instead of 224 pixels gives four times the positions, and takes four times as long for an image.
MAP_SCALE = 2


class UncroppedFeatures:
    """Features of uncropped images, from which the maps of every candidate are computed."""

    def __init__(self, frozen: FrozenBackbone, dataset: Dataset, workers: int = 0) -> None:
        self.frozen, self.device = frozen, next(frozen.backbone.parameters()).device
        backbone, size = frozen.backbone, MAP_SCALE * frozen.backbone.preprocessing.size
        try:
            with torch.inference_mode():
                backbone(torch.zeros(1, 3, size, size, device=self.device))
        except ValueError:  # it takes its own size only
            size = backbone.preprocessing.size
        self.preprocessing = replace(backbone.preprocessing, size=size)
        self.cached = cached_features(
            backbone, dataset, self.preprocessing, view="whole", workers=workers
        )
        self.dataset, self.workers = self.cached.dataset, workers
        self._cls_maps: Tensor | None = None

    def __len__(self) -> int:
        return len(self.cached)

    @torch.inference_mode()
    def maps(self, head: PooledHead) -> tuple[Tensor | None, str | None]:
        """Return maps (n, H, W) for the true classes and their kind: pool, cam or cls.

        Several maps are averaged; if each belongs to a vector, the deciding vector's map is used.
        Both are None if the model has no map.
        """
        if head.pool is None:
            return self._cls_attention()
        maps = []
        for start in range(0, len(self), BATCH):
            positions = list(range(start, min(start + BATCH, len(self))))
            features = self.cached.features(positions).to(self.device)
            labels = self.cached.labels[positions].to(self.device)
            try:
                batch = map_of_features(head, features, labels)
            except ValueError:  # the head does not fit the unpooled tokens
                return None, None
            maps.append(batch.float().cpu())
        return torch.cat(maps), "cam" if head.pool.no_attention else "pool"

    def _cls_attention(self) -> tuple[Tensor | None, str | None]:
        """Return the attention of the CLS token, computed once: no seed changes it."""
        if self._cls_maps is None:
            model = self.frozen.create_model(self.frozen.create_head("cls", 2))
            transform, maps = self.preprocessing.whole(), []
            for images, *_ in load(self.dataset, transform, 32, self.workers):
                try:
                    maps.append(model.attend(images.to(self.device), "cls").mean(1).float().cpu())
                except ValueError:  # an encoder whose attention cannot be read
                    return None, None
            self._cls_maps = torch.cat(maps)
        return self._cls_maps, "cls"


class MapScore(NamedTuple):
    boxes: float | None = None  # MaxBoxAccV2 in percent
    map: str | None = None  # its kind
    threshold: float | None = None  # the best one at IoU 0.5


class BoxScorer:
    """MaxBoxAccV2 of maps for the true class, on images that have boxes."""

    def __init__(self, features: UncroppedFeatures) -> None:
        self.features = features
        self.size = features.frozen.backbone.preprocessing.size
        dataset = features.dataset
        self.image_sizes = [dataset.image(i).size for i in range(len(features))]
        records = (dataset[i] for i in range(len(features)))
        self.boxes = [
            clip_boxes(own_boxes(record.boxes, record.label), size)
            for record, size in zip(records, self.image_sizes, strict=True)
        ]

    def __call__(self, head: PooledHead) -> MapScore:
        maps, kind = self.features.maps(head)
        if maps is None:
            return MapScore()
        accuracy = BoxAccuracy()
        for start in range(0, len(maps), BATCH):
            batch = slice(start, start + BATCH)
            resized = prepare_maps(maps[batch], self.size).numpy()
            accuracy.add(resized, self.boxes[batch], self.image_sizes[batch])
        best = accuracy.result()
        return MapScore(100 * best.score, kind, best.thresholds[accuracy.deltas.index(0.5)])

    def centred_box(self) -> float:
        """Return the score in percent of a fixed box in the middle, as a baseline."""
        accuracy, blank = CentredBox(), np.zeros((1, self.size, self.size), np.float32)
        for boxes, size in zip(self.boxes, self.image_sizes, strict=True):
            accuracy.add(blank, [boxes], [size])
        return 100 * accuracy.result().score


def example_photos(dataset: Dataset, count: int = 6) -> Dataset:
    """Select images of different classes, evenly spread."""
    first_of_class = [int(i) for i in np.unique(dataset.labels, return_index=True)[1]]
    positions = evenly_spaced(first_of_class, count)
    others = [i for i in range(len(dataset)) if i not in set(positions)]
    return dataset.select(sorted([*positions, *evenly_spaced(others, count - len(positions))]))
