"""MaskCut: Cut and learn for unsupervised object detection and segmentation (Wang et al. 2023)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...metrics.arrays import Array
from .base import (
    Grid,
    PatchFeatures,
    PatchObject,
    centred_keys,
    component,
    patch_array,
    patch_object,
    register,
)
from .token_cut import first_largest, graph, second_vector

MIN_AREA = 0.01  # share of the image, for a further object
MAX_IOU = 0.5  # of a cut with the one before: above it the cut is a repetition


@register("maskcut", "MaskCut", uses="keys")
def _discover(patches: PatchFeatures) -> list[PatchObject]:
    return mask_cut(centred_keys(patches), patches.grid)


def mask_cut(features: Any, grid: Grid, objects: int = 3, tau: float = 0.15) -> list[PatchObject]:
    """Find up to `objects` objects, one cut after the other, each without the patches before it.

    The published program inverts a cut if its side has three corners, with the eigenvector as the
    solver signed it; here the side with the largest value is tested. It also continues after a
    rejected cut, with nothing changed; here that is the end. Its smoothing in pixels (a CRF) is not
    implemented.
    """
    f = patch_array(features, grid).copy()
    covered = np.zeros(grid, bool)
    last_cut = covered
    results: list[PatchObject] = []
    for _ in range(objects):
        mask, seed = _cut(graph(f, tau), grid)
        if results and (_iou(mask, last_cut) > MAX_IOU or mask.mean() <= MIN_AREA):
            break
        last_cut, mask = mask, mask & ~covered
        if not mask.any():
            break
        results.append(patch_object(mask, seed))
        covered |= mask
        f[covered.ravel()] = 0  # from now on all their edges weigh EPS
    return results


def _cut(near: Array, grid: Grid) -> tuple[Array, int]:
    y = second_vector(near)
    if y is None:
        return np.ones(grid, bool), 0
    side = (y > y.mean()).reshape(grid)
    corners = side[[0, 0, -1, -1], [0, -1, 0, -1]]
    if corners.sum() >= 3:  # the side with three corners is the background
        y, side = -y, ~side
    seed = first_largest(y)
    return component(side, seed), seed


def _iou(a: Array, b: Array) -> float:
    return float((a & b).sum() / max((a | b).sum(), 1))
