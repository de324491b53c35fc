"""What methods of discovery found in an image, and how it is written down."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...metrics.arrays import Array


class Discovered(NamedTuple):
    """What one method found in one image."""

    boxes: Array  # (k, 4) in pixels of the image
    masks: list[Array]  # k of (H, W), in patches


class Sighting(NamedTuple):
    position: int  # in the data set
    size: tuple[int, int]  # (w, h)
    found: dict[str, Discovered]  # by method


def written(one: Sighting) -> list[Any]:
    found = {
        m: [d.boxes.tolist(), [rows_of(mask) for mask in d.masks]] for m, d in one.found.items()
    }
    return [one.position, *one.size, found]


def read(line: list[Any]) -> Sighting:
    found = {
        m: Discovered(np.array(boxes, np.float64).reshape(-1, 4), [mask_of(rows) for rows in masks])
        for m, (boxes, masks) in line[3].items()
    }
    return Sighting(line[0], (line[1], line[2]), found)


def rows_of(mask: Array) -> list[str]:
    """A mask of patches, a letter each."""
    return ["".join("01"[cell] for cell in row) for row in mask.astype(int)]


def mask_of(rows: list[str]) -> Array:
    return np.array([[cell == "1" for cell in row] for row in rows], bool)
