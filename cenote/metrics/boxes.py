"""Boxes x0, y0, x1, y1 against boxes, IoU and CorLoc; from an attention map to a mask and a box."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .arrays import Array, numpy_array

Box = tuple[int, int, int, int]  # x0, y0, x1, y1 in cells of a mask; the maxima are exclusive


def as_boxes(boxes: Any, name: str = "the image") -> Array:
    """(k, 4) float64; one box may come as (4,)."""
    array = numpy_array(boxes).astype(np.float64).reshape(-1, 4)
    wrong = array[~(array[:, :2] <= array[:, 2:]).all(1)]  # NaN, too
    if len(wrong):
        raise ValueError(
            f"{name}: box {wrong[0].tolist()} ends before it starts; a box is x0, y0, x1, y1, not "
            "x, y, w, h"
        )
    return array


def box_iou(first: Any, second: Any, plus_one: bool = False) -> Array:
    """(m, 4) and (n, 4) -> (m, n). `plus_one`: corners are pixels of the box, as in MaxBoxAcc."""
    a, b, extra = as_boxes(first)[:, None], as_boxes(second)[None], float(plus_one)
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])  # (m, n, 2)
    shared = np.maximum(sides + extra, 0).prod(-1)
    areas = [(x[..., 2:] - x[..., :2] + extra).prod(-1) for x in (a, b)]
    union = areas[0] + areas[1] - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


class CorLoc:
    """The share of images in which a found box overlaps any true one: streaming."""

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

    def result(self) -> float:
        return self.right / self.count


def corloc(found: Iterable[Any], truth: Iterable[Any], delta: float = 0.5) -> float:
    """The share of images in which a found box has IoU >= delta, without +1, with a true one."""
    score = CorLoc(delta)
    for boxes, true in zip(found, truth, strict=True):
        score.add(boxes, true)
    return score.result()


def mass_mask(maps: Tensor | np.ndarray[Any, Any], share: float = 0.6) -> Tensor:
    """(..., H, W) non-negative -> bool: the fewest positions whose mass reaches `share` of the
    map's.

    Ties keep the first position in reading order. A map without mass gives an empty mask.
    """
    maps = torch.as_tensor(maps)
    if not 0 < share <= 1:
        raise ValueError(f"share is more than 0 and at most 1, got {share}")
    if not torch.isfinite(maps).all() or (maps < 0).any():
        raise ValueError("a map with negative, NaN or infinite values has no mass to share out")
    flat = maps.flatten(-2).double()  # (..., H, W) -> (..., N)
    values, order = flat.sort(dim=-1, descending=True, stable=True)
    mass = values.cumsum(-1)
    # A position is needed while those before it fall short. The slack is for sums that should be
    # equal: six tenths of ten equal positions are six of them, whatever 0.1 + 0.1 + ... came to.
    needed = mass - values < share * mass[..., -1:] * (1 - 1e-12)
    needed &= values > 0
    return torch.zeros_like(needed).scatter(-1, order, needed).unflatten(-1, maps.shape[-2:])


def largest_box(mask: Tensor | np.ndarray[Any, Any]) -> Box | None:
    """The box around the largest 4-connected component of a (H, W) mask; None if the mask is empty.

    Ties keep the first component in reading order.
    """
    from scipy import ndimage

    array = numpy_array(mask).astype(bool)
    labels, count = ndimage.label(array)
    if not count:
        return None
    largest = int(np.bincount(labels.ravel())[1:].argmax())
    rows, columns = ndimage.find_objects(labels)[largest]
    return int(columns.start), int(rows.start), int(columns.stop), int(rows.stop)
