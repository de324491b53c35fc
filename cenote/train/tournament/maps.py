"""Where contenders look in whole, uncropped images, and whether an object is there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...data import Dataset
from ...data.loading import load
from ...data.truth import corners, own_boxes, spread
from ...metrics import BoxAccuracy, prepare_maps
from ...metrics.centred import CentredBox
from ...models.decided import map_of_features
from ...models.frozen import FrozenBackbone, PooledHead
from ...predict.feature_cache import FeatureCache, cached_features

BATCH = 64


class Looks:
    """The features of some whole images, read by every contender."""

    def __init__(
        self, frozen: FrozenBackbone, dataset: Dataset, cache: FeatureCache | None, workers: int = 0
    ) -> None:
        self.frozen, self.device = frozen, next(frozen.backbone.parameters()).device
        self.cached = cached_features(
            frozen.backbone, dataset, cache=cache, view="whole", workers=workers
        )
        self.dataset, self.workers = self.cached.dataset, workers
        self._cls: Tensor | None = None

    def __len__(self) -> int:
        return len(self.cached)

    @torch.inference_mode()
    def maps(self, top: PooledHead) -> tuple[Tensor | None, str | None]:
        """(n, H, W) for the images' own classes, and of which kind: the pool's own, CAM, or CLS attention.

        Several maps are averaged; where each belongs to a vector of its own, it is the one of the vector that decided.
        """
        if top.pool is None:
            return self._cls_maps()
        kind = "cam" if top.pool.no_attention else "pool"
        found = []
        for start in range(0, len(self), BATCH):
            which = range(start, min(start + BATCH, len(self)))
            labels = self.cached.labels[list(which)].to(self.device)
            one = self._of_batch(top, list(which), labels)
            if one is None:
                return None, None
            found.append(one.float().cpu())
        return torch.cat(found), kind

    def _of_batch(self, top: PooledHead, which: list[int], labels: Tensor) -> Tensor | None:
        features = self.cached.features(which).to(self.device)
        try:
            return map_of_features(self.frozen.create_model(top), features, labels)
        except ValueError:  # the head does not fit the unpooled tokens
            return None

    def _cls_maps(self) -> tuple[Tensor | None, str | None]:
        """The backbone's own: the same for every seed, so made once."""
        if self._cls is None:
            model = self.frozen.create_model(self.frozen.create_head("cls", 2))
            transform, found = self.frozen.backbone.preprocessing.whole(), []
            for images, *_ in load(self.dataset, transform, 32, self.workers):
                try:
                    found.append(model.attend(images.to(self.device), "cls").mean(1).float().cpu())
                except ValueError:  # an encoder whose attention cannot be read
                    return None, None
            self._cls = torch.cat(found)
        return self._cls, "cls"


class Boxed(NamedTuple):
    score: float | None = None  # MaxBoxAccV2 in percent
    kind: str | None = None  # of the map
    threshold: float | None = None  # the best one for boxes that overlap by half


class BoxJudge:
    """MaxBoxAccV2 of maps for the true class, on images that have boxes."""

    def __init__(self, looks: Looks) -> None:
        self.looks = looks
        self.size = looks.frozen.backbone.preprocessing.size
        self.sizes = [looks.dataset.image(i).size for i in range(len(looks))]
        records = (looks.dataset[i] for i in range(len(looks)))
        self.boxes = [
            corners(own_boxes(r.boxes, r.label), size)
            for r, size in zip(records, self.sizes, strict=True)
        ]

    def __call__(self, top: PooledHead) -> Boxed:
        maps, kind = self.looks.maps(top)
        if maps is None:
            return Boxed()
        accuracy = BoxAccuracy()
        for start in range(0, len(maps), BATCH):
            part = slice(start, start + BATCH)
            accuracy.add(
                prepare_maps(maps[part], self.size).numpy(), self.boxes[part], self.sizes[part]
            )
        best = accuracy.result()
        return Boxed(100 * best.score, kind, best.thresholds[accuracy.deltas.index(0.5)])

    def centred(self) -> float:
        """What a fixed box in the middle scores, which sees nothing; in percent."""
        accuracy, blank = CentredBox(), np.zeros((1, self.size, self.size), np.float32)
        for boxes, size in zip(self.boxes, self.sizes, strict=True):
            accuracy.add(blank, [boxes], [size])
        return 100 * accuracy.result().score


def photographs(dataset: Dataset, most: int = 6) -> Dataset:
    """A few to show: one of each of so many classes, evenly spread."""
    firsts = [int(i) for i in np.unique(dataset.labels, return_index=True)[1]]
    chosen = spread(firsts, most)
    rest = [i for i in range(len(dataset)) if i not in set(chosen)]
    return dataset.select(sorted([*chosen, *spread(rest, most - len(chosen))]))
