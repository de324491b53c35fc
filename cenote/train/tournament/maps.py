"""Attention maps of the candidates on uncropped images, and how well boxes fit them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...backbones import Backbone
from ...data import Dataset
from ...data.ground_truth import BoxArray, boxes_of, evenly_spaced, one_class_each, with_boxes
from ...data.loading import load
from ...data.splits import Splits
from ...metrics import BoxAccuracy, prepare_maps
from ...metrics.arrays import Array
from ...metrics.box_accuracy import CentredBox
from ...models.cam import map_of_features, why_no_cam
from ...models.frozen import FrozenBackbone, PooledHead
from ...pooling.own import OwnPool
from ...predict.distributed import device_of
from ...predict.feature_cache import CachedFeatures
from ...report.tournament import CandidateMaps
from ..extraction import extract

BATCH = 64
VAL_IMAGES = 100  # at most, to choose kind and size of the maps on
# Maps (n, H, W) of a kind for the true classes of a split ("test", "val" or "photos") at a size.
MapSource = Callable[[str, str, int], Tensor]
logger = logging.getLogger(__name__)


class MapScore(NamedTuple):
    """How well boxes of a candidate's maps fit, of the kind and size that are chosen for it."""

    map: str | None = None  # the kind of map: pool, cam or cls
    map_size: int | None = None
    boxes: float | None = None  # MaxBoxAccV2 in percent
    threshold: float | None = None  # the best one at IoU 0.5
    box_outcomes: Array | None = None  # (images,), whose mean is `boxes`


@dataclass(frozen=True)
class BoxedImages:
    """Readable images with boxes of their class."""

    dataset: Dataset
    boxes: list[BoxArray]
    sizes: list[tuple[int, int]]

    @classmethod
    def select(cls, dataset: Dataset, limit: int) -> BoxedImages:
        """Select at most `limit` images, evenly spaced."""
        dataset = with_boxes(dataset, limit)
        positions, boxes, sizes = [], [], []
        for i in range(len(dataset)):
            try:
                size = dataset.image(i).size
                boxes.append(boxes_of(dataset, i, size))
            except ValueError as error:  # an unreadable image, or a box outside of it
                logger.info("left out of the boxes: %s", error)
                continue
            positions.append(i)
            sizes.append(size)
        return cls(dataset.select(positions), boxes, sizes)

    def __len__(self) -> int:
        return len(self.dataset)

    def evaluate(self, maps: Tensor, side: int) -> tuple[Array, float]:
        """Return the share of IoUs at which each box is right, and the threshold at IoU 0.5.

        The mean share is MaxBoxAccV2: thresholds are the best for these images.
        """
        accuracy, parts = BoxAccuracy(), []
        for start in range(0, len(maps), BATCH):
            batch = slice(start, start + BATCH)
            resized = prepare_maps(maps[batch], side).numpy()
            parts.append(accuracy.add(resized, self.boxes[batch], self.sizes[batch]))
        deltas = np.array(accuracy.deltas)
        right = np.concatenate(parts)[:, None] >= deltas[:, None]  # (n, deltas, thresholds)
        best = right.mean(0).argmax(1)
        shares = right[:, range(len(deltas)), best].mean(1)
        return shares, float(accuracy.thresholds[best[accuracy.deltas.index(0.5)]])

    def centred_box(self, side: int) -> float:
        """Return MaxBoxAccV2 in percent of a fixed box in the middle, as a baseline."""
        accuracy, blank = CentredBox(), np.zeros((side, side), np.float32)
        accuracy.add([blank] * len(self), self.boxes, self.sizes)
        return 100 * accuracy.result().score


@dataclass(frozen=True)
class MapImages:
    """Uncropped images on which maps are chosen, evaluated and shown."""

    test: BoxedImages
    val: BoxedImages
    photos: Dataset
    sizes: tuple[int, ...]  # of images: that of training, and twice that if the backbone takes it

    @classmethod
    def select(cls, splits: Splits, limit: int, backbone: Backbone) -> MapImages:
        """Select at most `limit` images with boxes of the test split, or else of validation."""
        evaluated = one_class_each(splits.val if splits.test is None else splits.test)
        test = val = BoxedImages.select(evaluated, limit)
        if len(test) and splits.test is not None:
            val = BoxedImages.select(one_class_each(splits.val), VAL_IMAGES)
        photos = example_photos(test.dataset if len(test) else evaluated)
        return cls(test, val, photos, map_sizes(backbone))

    def dataset(self, split: str) -> Dataset:
        return self.photos if split == "photos" else getattr(self, split).dataset

    def score(
        self, kinds: Sequence[str], maps_of: MapSource
    ) -> tuple[MapScore, CandidateMaps | None]:
        """Choose a kind and a size; return the score of the boxes, and maps of the photographs."""
        if not kinds or not len(self.photos):
            return MapScore(), None
        kind, size = self._choose(kinds, maps_of)
        shown = (kind, maps_of(kind, "photos", size).numpy())
        if not len(self.test):
            return MapScore(kind, size), shown
        shares, threshold = self.test.evaluate(maps_of(kind, "test", size), self.sizes[0])
        return MapScore(kind, size, 100 * float(shares.mean()), threshold, shares), shown

    def _choose(self, kinds: Sequence[str], maps_of: MapSource) -> tuple[str, int]:
        """Return the kind and size whose boxes are best on validation, the first of equal ones.

        Without boxes it is the first kind: attention is sharper with more positions, a class
        activation map fits the training size.
        """
        if not len(self.val):
            return kinds[0], self.sizes[0 if kinds[0] == "cam" else -1]
        choices = list(product(kinds, self.sizes))
        if len(choices) == 1:
            return choices[0]
        scores = [
            self.val.evaluate(maps_of(kind, "val", size), self.sizes[0])[0].mean()
            for kind, size in choices
        ]
        return choices[int(np.argmax(scores))]


@torch.inference_mode()
def map_sizes(backbone: Backbone) -> tuple[int, ...]:
    """Return the training size, and twice that size if the backbone takes it."""
    size = backbone.preprocessing.size
    try:
        backbone(torch.zeros(1, 3, 2 * size, 2 * size, device=device_of(backbone)))
    except ValueError:
        return (size,)
    return (size, 2 * size)


class UncroppedFeatures:
    """Features of uncropped images, from which the maps of every candidate are computed."""

    def __init__(
        self, frozen: FrozenBackbone, images: MapImages, workers: int = 0, multi_label: bool = False
    ) -> None:
        self.frozen, self.images, self.workers = frozen, images, workers
        self.multi_label = multi_label
        self.device = device_of(frozen.backbone)
        self.cached = {
            (split, size): self._extract(split, size)
            for size in images.sizes
            for split in ("test", "val", "photos")
            if len(images.dataset(split))
        }
        self._cls_maps: dict[tuple[str, int], Tensor] = {}

    def _extract(self, split: str, size: int) -> CachedFeatures:
        preprocessing = replace(self.frozen.backbone.preprocessing, size=size)
        return extract(
            self.frozen.backbone,
            self.images.dataset(split),
            f"{split} at {size} pixels",
            preprocessing=preprocessing,
            view="whole",
            workers=self.workers,
        )

    def kinds(self, head: PooledHead) -> list[str]:
        """Return the kinds of maps of a candidate, the most telling first."""
        if head.pool is None:
            return self._cls_kind()
        has_cam = not why_no_cam(head)
        if self.multi_label and has_cam:
            return ["cam"]  # each class has its map
        kinds = ["pool"] * (not head.pool.no_attention) + ["cam"] * has_cam
        if not kinds and isinstance(head.pool, OwnPool) and self.frozen.backbone.has_cls:
            return self._cls_kind()
        return kinds

    def _cls_kind(self) -> list[str]:
        try:
            self._cls_attention("photos", self.images.sizes[0])
        except ValueError:  # an encoder whose attention cannot be read
            return []
        return ["cls"]

    @torch.inference_mode()
    def maps(self, head: PooledHead, kind: str, split: str, size: int) -> Tensor:
        """Return the maps (n, H, W) for the true classes, as `MapSource`.

        Several maps are averaged; if each belongs to a vector, the deciding vector's map is used.
        """
        if kind == "cls":
            return self._cls_attention(split, size)
        maps, cached = [], self.cached[split, size]
        for start in range(0, len(cached), BATCH):
            positions = list(range(start, min(start + BATCH, len(cached))))
            features = cached.features(positions).to(self.device)
            labels = cached.labels[positions].to(self.device)
            maps.append(map_of_features(head, features, labels, kind).float().cpu())
        return torch.cat(maps)

    @torch.inference_mode()
    def _cls_attention(self, split: str, size: int) -> Tensor:
        """Return the attention of the CLS token, computed once: no seed changes it."""
        if (split, size) not in self._cls_maps:
            model = self.frozen.create_model(self.frozen.create_head("cls", 2))
            preprocessing = replace(self.frozen.backbone.preprocessing, size=size)
            images = load(self.images.dataset(split), preprocessing.whole(), 32, self.workers)
            maps = [model.attend(b.images.to(self.device), "cls").mean(1) for b in images]
            self._cls_maps[split, size] = torch.cat(maps).float().cpu()
        return self._cls_maps[split, size]


def example_photos(dataset: Dataset, count: int = 6) -> Dataset:
    """Select readable images of different classes, evenly spread."""
    first_of_class = [int(i) for i in np.unique(dataset.labels, return_index=True)[1]]
    positions = evenly_spaced(first_of_class, count)
    others = [i for i in range(len(dataset)) if i not in set(positions)]
    positions = sorted([*positions, *evenly_spaced(others, count - len(positions))])
    return dataset.select([i for i in positions if _is_readable(dataset, i)])


def _is_readable(dataset: Dataset, position: int) -> bool:
    try:
        dataset.image(position)
    except ValueError:
        return False
    return True
