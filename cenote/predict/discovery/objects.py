"""What every way of discovering objects shares: an object in patches, and the piece of a mask that holds a seed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...metrics.arrays import Array, numpy_array
from ...metrics.masks import Box

Grid = tuple[int, int]


class Found(NamedTuple):
    """One object, or none: then the mask is empty and the box None."""

    mask: Array  # (H, W) bool, in patches
    box: Box | None  # x0, y0, x1, y1 in patches; the maxima are exclusive
    seed: int | None = None  # the patch it grew from, in reading order


def found(mask: Array, seed: int | None = None) -> Found:
    if not mask.any():
        return Found(mask, None, seed)
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return Found(
        mask, (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1), seed
    )


def component(mask: Array, seed: int) -> Array:
    """The 4-connected piece of a (H, W) mask that holds patch `seed`; empty where the mask does not."""
    from scipy import ndimage

    labels, _ = ndimage.label(mask)
    own = labels.flat[seed]
    return np.asarray(labels == own) if own else np.zeros_like(mask)


def patches(features: Any, grid: Grid, name: str) -> Array:
    """(N, D) of a grid of N patches, finite, in its own precision (float32 at least)."""
    array = numpy_array(features)
    if array.ndim != 2 or array.shape[0] != grid[0] * grid[1] or not array.size:
        raise ValueError(
            f"{name}: {grid[0]} x {grid[1]} patches need features (N, D), got shape {array.shape}"
        )
    if not np.issubdtype(array.dtype, np.floating):
        array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: its features are NaN or infinite, so nothing can be found in it")
    return array
