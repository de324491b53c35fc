"""Ground truth of a map of an image's class: its boxes and its mask."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from .dataset import Dataset, pack
from .images import BadImage
from .record import Box

T = TypeVar("T")
BoxArray = npt.NDArray[np.float64]  # (k, 4) x0, y0, x1, y1 in pixels


def own_boxes(boxes: Sequence[Box], label: str | None) -> list[Box]:
    """Return the boxes of the image's class, without crowds."""
    return [box for box in boxes if box.label in (None, label) and not box.crowd]


def visible(boxes: Sequence[Box], size: Sequence[int], path: str | PathLike[str]) -> BoxArray:
    """Clip boxes at the border of an image of `size` (w, h), which some published boxes exceed.

    A box of which nothing remains is a ValueError: every method would miss it.
    """
    array = np.array([box[:4] for box in boxes], np.float64).reshape(-1, 4)
    clipped = np.clip(array, 0, [size[0], size[1]] * 2)
    outside = ~(clipped[:, 2:] > clipped[:, :2]).all(1)  # also NaN
    if outside.any():
        corners = ", ".join(f"{value:g}" for value in boxes[int(outside.argmax())][:4])
        raise ValueError(
            f"{path}: its box {corners} is outside of the image of {size[0]} x {size[1]} pixels"
        )
    return clipped


def boxes_of(dataset: Dataset, position: int, size: Sequence[int]) -> BoxArray:
    """Return the clipped boxes of an image's class; a box outside of it is a ValueError."""
    record = dataset[position]
    return visible(own_boxes(record.boxes, record.label), size, dataset.path(position))


def mask_of(dataset: Dataset, position: int, size: Sequence[int]) -> npt.NDArray[np.uint8] | None:
    """Return the mask of an image; one of another size (w, h) than the image is a BadImage."""
    mask = dataset.mask(position)
    if mask is not None and mask.shape != (size[1], size[0]):
        sizes = f"{mask.shape[1]} x {mask.shape[0]} pixels, the image {size[0]} x {size[1]}"
        raise BadImage(dataset.path(position), f"its mask has {sizes}")
    return mask


def with_boxes(dataset: Dataset, limit: int | None = None) -> Dataset:
    """Select the images that have boxes of their class, at most `limit`, evenly spaced."""
    positions = [i for i, record in enumerate(dataset) if own_boxes(record.boxes, record.label)]
    return dataset.select(positions if limit is None else evenly_spaced(positions, limit))


def one_class_each(dataset: Dataset) -> Dataset:
    """Return an image of a multi-label data set once for each of its classes, as its only one.

    Masks are left out: they are not of one class. Other data sets are returned as they are.
    """
    if not dataset.multi_label:
        return dataset
    records = (
        record._replace(label=name, labels=None, masks=(), ignore=None)
        for record in dataset
        for name in record.labels or ()
    )
    return pack(records, dataset.root, dataset.name, dataset.classes)


def evenly_spaced(items: Sequence[T], limit: int) -> list[T]:
    """Return at most `limit` items, evenly spaced."""
    if len(items) <= limit:
        return list(items)
    return [items[i * len(items) // limit] for i in range(limit)]
