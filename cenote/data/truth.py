"""The boxes that a map of an image's class is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from .dataset import Dataset
from .record import Box

T = TypeVar("T")


def own_boxes(boxes: Sequence[Box], label: str | None) -> list[Box]:
    """Those of the image's class that count."""
    return [box for box in boxes if box.label in (None, label) and not box.crowd]


def corners(boxes: Sequence[Box], size: tuple[int, int]) -> np.ndarray[Any, Any]:
    """(k, 4), cut off at the border of an image of `size` (w, h): published boxes stick out now and then."""
    found = np.array([box[:4] for box in boxes], np.float64).reshape(-1, 4)
    return np.clip(found, 0, [*size, *size])


def with_boxes(dataset: Dataset, most: int | None = None) -> Dataset:
    """The images that have boxes of their class; at most so many, evenly spread."""
    found = [i for i, record in enumerate(dataset) if own_boxes(record.boxes, record.label)]
    return dataset.select(found if most is None else spread(found, most))


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most so many, evenly spread."""
    return list(items) if len(items) <= most else [items[i * len(items) // most] for i in range(most)]
