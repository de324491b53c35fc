"""The record types that all readers return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

# Names of splits in use, in lower case, and the name used here.
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
    **{"query": "query", "gallery": "gallery"},
}


class Box(NamedTuple):
    """Box in pixels of the upright image; the right and bottom edges are exclusive."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: str | None = None  # None: the image's class
    difficult: bool = False
    truncated: bool = False
    crowd: bool = False


class Record(NamedTuple):
    """One image and its annotations; None or empty where there are none."""

    image: str  # a path relative to the data set's root, or an absolute one
    label: str | None = None
    split: str | None = None
    boxes: tuple[Box, ...] = ()
    masks: tuple[str, ...] = ()  # paths; the mask is their union
    ignore: str | None = None  # path of a mask of pixels to ignore
    domain: str | None = None
    attributes: Mapping[str, str] = {}
    caption: str | None = None
    # All classes of an image that may have several, () if it has none of them. Then `label` is
    # None. A data set in which no image has two is given labels instead (`pack`).
    labels: tuple[str, ...] | None = None


def box_classes(boxes: Iterable[Box]) -> tuple[str, ...]:
    """Return the classes of boxes, each once: those of an image without another annotation."""
    return tuple(dict.fromkeys(box.label for box in boxes if box.label))


class Problem(NamedTuple):
    """Message of a reader in place of a record that it could not read."""

    message: str


class RetrievalQuery(NamedTuple):
    """Query with its correct answers, all as positions in the data set."""

    image: int
    truth: Mapping[str, tuple[int, ...]]  # by the protocol's names: targets; or easy, hard, junk
    text: str | None = None
    box: tuple[float, float, float, float] | None = None
    group: str | None = None  # results are averaged over groups: a garment, an attribute
    name: str | None = None  # id for the authors' evaluation server
