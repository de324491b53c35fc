"""MaskCut (Wang et al., Cut and learn for unsupervised object detection and instance segmentation, 2023)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...metrics.arrays import Array
from .objects import Found, Grid, component, found, patches
from .token_cut import first_largest, graph, second_vector

SMALLEST, OVERLAP = (
    0.01,
    0.5,
)  # a further object is larger than this share, and no repetition of the one before


def mask_cut(
    features: Any, grid: Grid, objects: int = 3, tau: float = 0.15, name: str = "the image"
) -> list[Found]:
    """Up to so many objects: one cut after the other, each without the patches of those before.

    The published program turns a cut round when its side holds three corners, and asks that of the eigenvector as the
    solver signed it; here it is asked of the side with the largest value. It also goes on after a cut that it
    rejected, with nothing changed; here that is the end. Its smoothing in pixels (a CRF) is not part of this.
    """
    if objects < 1:
        raise ValueError(f"MaskCut looks for at least one object, got {objects}")
    f = patches(features, grid, name).copy()
    taken = np.zeros(grid, bool)
    all_found: list[Found] = []
    for _ in range(objects):
        mask, seed = _cut(graph(f, tau), grid)
        if all_found and (_iou(mask, all_found[-1].mask) > OVERLAP or mask.mean() <= SMALLEST):
            break
        mask &= ~taken
        if not mask.any():
            break
        all_found.append(found(mask, seed))
        taken |= mask
        f[taken.ravel()] = 0  # its edges all weigh eps from now on
    return all_found


def _cut(near: Array, grid: Grid) -> tuple[Array, int]:
    y = second_vector(near)
    if y is None:
        return np.ones(grid, bool), 0
    side = (y > y.mean()).reshape(grid)
    if (
        side[[0, 0, -1, -1], [0, -1, 0, -1]].sum() >= 3
    ):  # what holds three corners is the background
        y, side = -y, ~side
    seed = first_largest(y)
    return component(side, seed), seed


def _iou(a: Array, b: Array) -> float:
    return float((a & b).sum() / max((a | b).sum(), 1))
