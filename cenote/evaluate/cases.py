"""Single images that show what a localization score is made of: the worst, the median and the best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data import Dataset
from ..data.loading import load
from ..data.truth import boxes_of
from ..metrics import boxes_at
from ..metrics.arrays import Array
from ..predict.maps import MapPredictor

GROUPS = ("worst", "median", "best")


@dataclass(frozen=True)
class Case:
    """One image: its map for the true class, the box at the threshold, and the truth, in pixels of the image."""

    group: str
    position: int  # among the judged images
    file: str
    iou: float
    box: tuple[float, ...] | None
    truth: Array  # (k, 4)
    map: Array  # (size, size) in [0, 1], of the whole image
    label: str | None
    predicted: str | None

    def row(self) -> dict[str, Any]:
        """Without the map, for JSON."""
        box = None if self.box is None else [round(x, 1) for x in self.box]
        named = {"class": self.label, "predicted": self.predicted}
        return {"group": self.group, "file": self.file, "iou": round(self.iou, 4), "box": box,
                "truth": self.truth.round(1).tolist(), **named}  # fmt: skip


def pick(ious: Array, each: int) -> dict[int, str]:
    """Places in `ious` of at most so many of each group, in the groups' order; of equals the first come first."""
    order = np.argsort(ious, kind="stable")
    middle = max(0, (len(order) - each) // 2)
    parts = (order[:each], order[middle : middle + each], order[::-1][:each])
    chosen: dict[int, str] = {}
    for group, part in zip(GROUPS, parts, strict=True):
        for place in part.tolist():
            chosen.setdefault(place, group)
    return chosen


def look_again(
    predictor: MapPredictor,
    dataset: Dataset,
    classes: Tensor,
    chosen: dict[int, str],
    ious: dict[int, float],
    threshold: float,
) -> list[Case]:
    """The cases at these positions: maps are not kept while counting, so that memory does not grow with the images."""
    positions, cases = list(chosen), []
    names = predictor.model.class_names
    for found in load(dataset.select(positions), predictor.transform(), predictor.batch):
        if not len(found.indices):
            continue
        images, sizes = found.images
        at = [positions[i] for i in found.indices.tolist()]
        sight = predictor.predict(images)
        maps = predictor.scores(sight.maps(classes[at].to(sight.images.device)))
        told = None if sight.logits is None else sight.logits.argmax(1).tolist()
        for i, position in enumerate(at):
            size = sizes[i].tolist()
            boxes = boxes_at(maps[i], threshold)
            scale = np.array([*size, *size]) / predictor.size
            predicted = None if told is None else str(told[i]) if names is None else names[told[i]]
            cases.append(
                Case(chosen[position], position, str(dataset.path(position)), ious[position],
                     tuple((boxes[0] * scale).tolist()) if len(boxes) else None,
                     boxes_of(dataset, position, size), maps[i], dataset[position].label, predicted)
            )  # fmt: skip
    return cases


def show_cases(
    predictor: MapPredictor,
    dataset: Dataset,
    classes: Tensor,
    positions: list[int],
    ious: Array,
    threshold: float,
    each: int,
) -> list[Case]:
    """The worst, median and best of the images at `positions`, whose largest contour has these IoUs."""
    if not len(ious):
        return []
    chosen = {positions[place]: group for place, group in pick(ious, each).items()}
    known = dict(zip(positions, ious.tolist(), strict=True))
    with torch.no_grad():
        return look_again(predictor, dataset, classes, chosen, known, threshold)
