"""What all discovery methods share: their input, their output and the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor

from ...metrics.arrays import Array, numpy_array
from ...metrics.boxes import Box

Grid = tuple[int, int]
Uses = Literal["keys", "attention", "object map"]


class PatchFeatures(NamedTuple):
    """Keys and attention of the patches of one image."""

    position: int  # in the data set
    size: tuple[int, int]  # (w, h) of the image
    grid: Grid
    keys: Tensor | None  # (N, D)
    attention: Tensor | None  # (H, W), non-negative
    extent: tuple[float, float] = (0, 0)  # (w, h) of the grid in pixels of the image


class PatchObject(NamedTuple):
    """One object in cells of its mask, such as patches; without an object the mask is empty and the box None."""

    mask: Array  # (H, W) bool
    box: Box | None  # x0, y0, x1, y1; the maxima are exclusive
    seed: int | None = None  # the patch it grew from, in reading order


Find = Callable[[PatchFeatures], list[PatchObject]]


@dataclass(frozen=True)
class DiscoveryMethod:
    title: str
    uses: Uses
    # Raises ValueError about an image in which nothing can be found; None: the boxes of object maps.
    find: Find | None


METHODS: dict[str, DiscoveryMethod] = {}


def register(name: str, title: str, uses: Uses) -> Callable[[Find], Find]:
    """Register a function as a discovery method."""

    def decorate(find: Find) -> Find:
        METHODS[name] = DiscoveryMethod(title, uses, find)
        return find

    return decorate


def patch_object(mask: Array, seed: int | None = None) -> PatchObject:
    """Return a mask (H, W) with its box."""
    if not mask.any():
        return PatchObject(mask, None, seed)
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    box = (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)
    return PatchObject(mask, box, seed)


def component(mask: Array, seed: int) -> Array:
    """Return the 4-connected component of a (H, W) mask that contains patch `seed`, or nothing."""
    from scipy import ndimage

    labels, _ = ndimage.label(mask)
    label = labels.flat[seed]
    return np.asarray((labels == label) & (label > 0))


def centred_keys(patches: PatchFeatures) -> Tensor:
    """Return the keys; those without negative values, which are all similar, minus their mean."""
    assert patches.keys is not None
    if bool((patches.keys >= 0).all()):
        return patches.keys - patches.keys.mean(0)
    return patches.keys


def patch_array(features: Any, grid: Grid) -> Array:
    """Return features (N, D) of a grid of N patches as floats; raise if they are not finite."""
    array = numpy_array(features)
    if array.ndim != 2 or array.shape[0] != grid[0] * grid[1] or not array.size:
        raise ValueError(
            f"{grid[0]} x {grid[1]} patches need features (N, D), got shape {array.shape}"
        )
    if not np.issubdtype(array.dtype, np.floating):
        array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError("its features are NaN or infinite, so nothing can be found in it")
    return array
