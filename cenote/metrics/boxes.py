"""Boxes x0, y0, x1, y1 against boxes: IoU and CorLoc."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .arrays import Array, named, numpy_array, side_by_side


def as_boxes(boxes: Any, name: str = "") -> Array:
    """(k, 4) float64; one box may come as (4,)."""
    array = numpy_array(boxes).astype(np.float64)
    array = (
        array.reshape(1, 4)
        if array.shape == (4,)
        else array.reshape(0, 4)
        if array.size == 0
        else array
    )
    where = f"{name}: " if name else ""
    if array.ndim != 2 or array.shape[1] != 4:
        raise ValueError(f"{where}boxes are (k, 4): x0, y0, x1, y1; got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{where}a box has a NaN or infinite coordinate: {array.tolist()}")
    if (array[:, :2] > array[:, 2:]).any():
        bad = array[(array[:, :2] > array[:, 2:]).any(1)][0].tolist()
        raise ValueError(
            f"{where}box {bad} ends before it starts; a box is x0, y0, x1, y1, not x, y, w, h"
        )
    return array


def box_iou(first: Any, second: Any, plus_one: bool = False) -> Array:
    """(m, 4) and (n, 4) -> (m, n). `plus_one`: both corners are pixels of the box, as in MaxBoxAcc
    and the VOC kit.
    """
    a, b, extra = as_boxes(first)[:, None], as_boxes(second)[None], float(plus_one)
    sides = (
        np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]) + extra
    )  # (m, n, 2)
    shared = np.maximum(sides, 0).prod(-1)
    union = (
        (a[..., 2:] - a[..., :2] + extra).prod(-1)
        + (b[..., 2:] - b[..., :2] + extra).prod(-1)
        - shared
    )
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


class CorLoc:
    """The share of images in which a found box overlaps any true one: streaming, mergeable."""

    def __init__(self, delta: float = 0.5) -> None:
        self.delta, self.right, self.count = delta, 0, 0

    def add(self, found: Any, truth: Any, name: str = "") -> bool:
        """One image; `found` is a box, several, or None or an empty list if nothing was found."""
        name = name or f"image {self.count}"
        true_boxes = as_boxes(truth, name)
        if not len(true_boxes):
            raise ValueError(f"{name} has no true box: leave it out of CorLoc")
        overlaps = box_iou(as_boxes([] if found is None else found, name), true_boxes)  # no +1
        right = bool((overlaps >= self.delta).any())
        self.right, self.count = self.right + right, self.count + 1
        return right

    def merge(self, other: CorLoc) -> None:
        if other.delta != self.delta:
            raise ValueError(f"CorLoc at {self.delta} and at {other.delta} do not add up")
        self.right, self.count = self.right + other.right, self.count + other.count

    def result(self) -> float:
        if not self.count:
            raise ValueError("CorLoc of no image: add some first")
        return self.right / self.count


def corloc(
    found: Iterable[Any],
    truth: Iterable[Any],
    delta: float = 0.5,
    names: Sequence[str] | None = None,
) -> float:
    """The share of images whose found box (or one of several) has IoU >= delta, without +1, with
    any true box.
    """
    score = CorLoc(delta)
    for i, (boxes, true) in enumerate(side_by_side(found=found, truth=truth)):
        score.add(boxes, true, named(names, i))
    return score.result()
