"""Where contenders look in whole, uncropped images, and whether an object is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..backbones import Features
from ..data import Box, Dataset
from ..data.cache import FeatureCache
from ..data.loading import load
from ..metrics import BoxAccuracy, prepare_maps
from ..models.cam import cam_of_features
from .features import cached_features
from .top import Frozen, Top

BATCH = 64


class Looks:
    """The features of some whole images, read by every contender."""

    def __init__(self, frozen: Frozen, dataset: Dataset, cache: FeatureCache | None, workers: int = 0) -> None:
        self.frozen, self.device = frozen, next(frozen.backbone.parameters()).device
        self.cached = cached_features(frozen.backbone, dataset, cache=cache, view="whole", workers=workers)
        self.dataset, self.workers = self.cached.dataset, workers
        self._cls: Tensor | None = None

    def __len__(self) -> int:
        return len(self.cached)

    @torch.inference_mode()
    def maps(self, top: Top) -> tuple[Tensor | None, str | None]:
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

    def _of_batch(self, top: Top, which: list[int], labels: Tensor) -> Tensor | None:
        features = on_device(self.cached.features(which), self.device)
        model, pool = self.frozen.model(top), top.pool
        assert pool is not None
        u, a = model.pool_features(features)
        if a is None:
            try:
                return cam_of_features(model, features, labels)[:, 0]
            except ValueError:  # the head does not fit the unpooled tokens
                return None
        if a.shape[1] == pool.k > 1 and top.head.project is None:
            v = top.after(u)  # (B, k, D)
            logits = top.head.linear(v if top.head.norm is None else top.head.norm.settled(v))  # (B, k, classes)
            winner = logits.gather(2, labels[:, None, None].expand(-1, pool.k, 1)).argmax(1)[:, 0]  # (B,)
            return a[torch.arange(len(a), device=a.device), winner]
        return a.mean(1)

    def _cls_maps(self) -> tuple[Tensor | None, str | None]:
        """The backbone's own: the same for every seed, so made once."""
        if self._cls is None:
            model = self.frozen.model(self.frozen.top("cls", 2))
            transform, found = self.frozen.backbone.preprocessing.whole(), []
            for images, *_ in load(self.dataset, transform, 32, self.workers):
                try:
                    found.append(model.attend(images.to(self.device), "cls").mean(1).float().cpu())
                except ValueError:  # an encoder whose attention cannot be read
                    return None, None
            self._cls = torch.cat(found)
        return self._cls, "cls"


class BoxJudge:
    """MaxBoxAccV2 of maps for the true class, on images that have boxes."""

    def __init__(self, looks: Looks) -> None:
        self.looks = looks
        self.size = looks.frozen.backbone.preprocessing.size
        self.sizes = [looks.dataset.image(i).size for i in range(len(looks))]
        records = (looks.dataset[i] for i in range(len(looks)))
        self.boxes = [_inside(own_boxes(r.boxes, r.label), size) for r, size in zip(records, self.sizes, strict=True)]

    def __call__(self, top: Top) -> tuple[float | None, str | None]:
        """In percent, and the kind of map."""
        maps, kind = self.looks.maps(top)
        if maps is None:
            return None, None
        accuracy = BoxAccuracy()
        for start in range(0, len(maps), BATCH):
            part = slice(start, start + BATCH)
            accuracy.add(prepare_maps(maps[part], self.size).numpy(), self.boxes[part], self.sizes[part])
        return 100 * accuracy.result().score, kind


def on_device(features: Features, device: torch.device) -> Features:
    tokens, grid, cls = features
    return Features(tokens.to(device), grid, None if cls is None else cls.to(device))


def own_boxes(boxes: Sequence[Box], label: str | None) -> list[Box]:
    """Those of the image's class that count."""
    return [box for box in boxes if box.label in (None, label) and not box.crowd]


def with_boxes(dataset: Dataset, most: int) -> Dataset:
    """At most so many images that have boxes, evenly spread."""
    found = [i for i, record in enumerate(dataset) if own_boxes(record.boxes, record.label)]
    return dataset.select(_spread(found, most))


def photographs(dataset: Dataset, most: int = 6) -> Dataset:
    """A few to show: one of each of so many classes, evenly spread."""
    firsts = [int(i) for i in np.unique(dataset.labels, return_index=True)[1]]
    chosen = _spread(firsts, most)
    rest = [i for i in range(len(dataset)) if i not in set(chosen)]
    return dataset.select(sorted([*chosen, *_spread(rest, most - len(chosen))]))


def _spread(items: list[int], most: int) -> list[int]:
    return items if len(items) <= most else [items[i * len(items) // most] for i in range(most)]


def _inside(boxes: Sequence[Box], size: tuple[int, int]) -> Any:
    """Cut off at the border: published boxes stick out now and then."""
    corners = np.array([box[:4] for box in boxes], np.float64).reshape(-1, 4)
    return np.clip(corners, 0, [*size, *size])
