"""What a map of an image's class is judged by: the true boxes and the mask, or a sentence where they are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .dataset import Dataset
from .images import BadImage
from .record import Box

T = TypeVar("T")


def own_boxes(boxes: Sequence[Box], label: str | None) -> list[Box]:
    """Those of the image's class that count."""
    return [box for box in boxes if box.label in (None, label) and not box.crowd]


def corners(boxes: Sequence[Box], size: tuple[int, int]) -> np.ndarray[Any, Any]:
    """(k, 4), cut off at the border of an image of `size` (w, h): published boxes stick out now and then."""
    found = np.array([box[:4] for box in boxes], np.float64).reshape(-1, 4)
    return np.clip(found, 0, [*size, *size])


def visible(
    boxes: Sequence[Box], size: Sequence[int], path: str | PathLike[str]
) -> np.ndarray[Any, Any]:
    """`corners`; a box of which nothing is left would count as missed by every method: it is a ValueError."""
    cut = corners(boxes, (size[0], size[1]))
    outside = ~(cut[:, 2:] > cut[:, :2]).all(1)  # also what is no number
    if outside.any():
        told = ", ".join(f"{value:g}" for value in boxes[int(outside.argmax())][:4])
        raise ValueError(
            f"{path}: its box {told} lies outside of the image of {size[0]} x {size[1]} pixels"
        )
    return cut


def boxes_of(dataset: Dataset, position: int, size: Sequence[int]) -> np.ndarray[Any, Any]:
    """(k, 4) true boxes of the image's class, cut off at the border; one that lies outside is a ValueError."""
    record = dataset[position]
    return visible(own_boxes(record.boxes, record.label), size, dataset.path(position))


def mask_of(dataset: Dataset, position: int, size: Sequence[int]) -> npt.NDArray[np.uint8] | None:
    """As `Dataset.mask`; one that is not of the image's size (w, h) is a BadImage."""
    mask = dataset.mask(position)
    if mask is not None and mask.shape != (size[1], size[0]):
        told = f"{mask.shape[1]} x {mask.shape[0]} pixels, the image {size[0]} x {size[1]}"
        raise BadImage(dataset.path(position), f"its mask has {told}")
    return mask


def with_boxes(dataset: Dataset, most: int | None = None) -> Dataset:
    """The images that have boxes of their class; at most so many, evenly spread."""
    found = [i for i, record in enumerate(dataset) if own_boxes(record.boxes, record.label)]
    return dataset.select(found if most is None else spread(found, most))


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most so many, evenly spread."""
    return (
        list(items) if len(items) <= most else [items[i * len(items) // most] for i in range(most)]
    )
