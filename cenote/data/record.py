"""The one shape that every reader's truth takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# What people call their splits, in any case, and what it is called here.
SPLITS = {
    **{
        "train": "train",
        "training": "train",
        "val": "val",
        "valid": "val",
        "validation": "val",
        "dev": "val",
    },
    **{"test": "test", "testing": "test", "query": "query", "gallery": "gallery"},
}


class Box(NamedTuple):
    """Pixels of the upright image: left, top, and the right and bottom edges, which lie outside."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: str | None = None  # None: the image's own class
    difficult: bool = False
    truncated: bool = False
    crowd: bool = False


class Record(NamedTuple):
    """One image and whatever is known of it; None or empty where nothing is."""

    image: str  # a path below the dataset's root, or an absolute one
    label: str | None = None
    split: str | None = None
    boxes: tuple[Box, ...] = ()
    masks: tuple[str, ...] = ()  # paths; several are united
    ignore: str | None = None  # the path of a mask of what does not count
    domain: str | None = None
    attributes: Mapping[str, str] = {}
    caption: str | None = None


class Problem(NamedTuple):
    """What a reader says in the place of a record that it could not make."""

    sentence: str


class Query(NamedTuple):
    """A question with its right answers, all as positions in the dataset."""

    image: int
    truth: Mapping[
        str, tuple[int, ...]
    ]  # by the protocol's own names: targets, or easy, hard and junk
    text: str | None = None
    box: tuple[float, float, float, float] | None = None
    group: str | None = None  # results are averaged over such groups: a garment, an attribute
    name: str | None = None  # as the authors' server asks for it
