"""Records in columns: a million of them in a handful of NumPy arrays.

A list of a million Python strings costs 100 MB, and worker processes copy it page by page because
reading a Python object writes its reference count. Forked workers share these arrays untouched.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .record import SPLITS, Box, Record

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Strings:
    """Column of strings, concatenated in one buffer; `present` is False where a value is None."""

    text: npt.NDArray[np.uint8]
    ends: Ints
    present: npt.NDArray[np.bool_]

    def __getitem__(self, row: int) -> str | None:
        if not self.present[row]:
            return None
        start = self.ends[row - 1] if row else 0
        encoded = self.text[start : self.ends[row]].tobytes()
        return encoded.decode("utf-8", "surrogateescape")  # a file name need not be UTF-8


def encode_name(name: str) -> bytes:
    """Return the bytes of a file name, which need not be UTF-8; other halves of pairs become "?"."""
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # JSON can name what no file name has: "\ud800"
        return name.encode("utf-8", "replace")


def readable_name(name: str) -> str:
    """Return text in which bytes that are not UTF-8 are spelled: "\\xff"."""
    return name if name.isascii() else encode_name(name).decode("utf-8", "backslashreplace")


class StringsBuilder:
    """Collects the strings of some rows, in order; the other rows are None."""

    def __init__(self) -> None:
        self.text, self.rows, self.lengths = bytearray(), array("q"), array("q")

    def put(self, row: int, value: str) -> None:
        encoded = encode_name(value)
        self.text += encoded
        self.rows.append(row)
        self.lengths.append(len(encoded))

    def build(self, rows: int) -> Strings:
        if not self.rows:  # costs no memory
            return Strings(np.empty(0, np.uint8), np.empty(0, int), np.broadcast_to(False, rows))
        lengths, present = np.zeros(rows, np.int64), np.zeros(rows, bool)
        lengths[np.array(self.rows)], present[np.array(self.rows)] = self.lengths, True
        return Strings(np.frombuffer(self.text, np.uint8), lengths.cumsum(), present)


@dataclass(frozen=True)
class Categories:
    """Column of few different strings: `codes` into `names`, -1 for None."""

    codes: npt.NDArray[np.int32]
    names: list[str]

    def __getitem__(self, row: int) -> str | None:
        code = self.codes[row]
        return self.names[code] if code >= 0 else None

    def select(self, rows: Ints) -> Categories:
        return Categories(self.codes[rows], self.names)


class CategoriesBuilder:
    """Collects the names of some rows; the other rows are None."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.rows, self.codes = array("q"), array("i")

    def put(self, row: int, value: str) -> None:
        self.rows.append(row)
        self.codes.append(self.index.setdefault(readable_name(value), len(self.index)))

    def build(self, rows: int, order: list[str] | None = None) -> Categories:
        """Return the column with its names in this order, by default sorted by `natural`."""
        order = sorted(self.index, key=natural) if order is None else order
        codes = np.full(rows, -1, np.int32)
        codes[np.array(self.rows)] = self.codes_in(order)
        return Categories(codes, order)

    def codes_in(self, order: list[str]) -> npt.NDArray[np.int32]:
        """Return the position in `order` of each collected name."""
        positions = {name: position for position, name in enumerate(order)}
        lookup = np.array([positions[name] for name in self.index], np.int32)
        codes: npt.NDArray[np.int32] = lookup[np.array(self.codes)]
        return codes


class BoxTable(NamedTuple):
    """Boxes of all rows; row i has those from ends[i - 1] to ends[i]."""

    ends: Ints
    corners: npt.NDArray[np.float64]  # (N, 4)
    labels: Categories
    flags: npt.NDArray[np.uint8]  # bits: difficult, truncated, crowd

    def of_row(self, row: int) -> tuple[Box, ...]:
        boxes = []
        for k in range(self.ends[row - 1] if row else 0, self.ends[row]):
            x1, y1, x2, y2 = self.corners[k].tolist()
            flags = (bool(self.flags[k] >> bit & 1) for bit in range(3))
            boxes.append(Box(x1, y1, x2, y2, self.labels[k], *flags))
        return tuple(boxes)


class LabelSets(NamedTuple):
    """Classes of all rows; row i has those from ends[i - 1] to ends[i]."""

    ends: Ints
    codes: npt.NDArray[np.int32]
    known: npt.NDArray[np.bool_]  # (rows,): False where nothing is known about the classes

    def of_row(self, row: int) -> Ints:
        return self.codes[self.ends[row - 1] if row else 0 : self.ends[row]].astype(np.int64)


class RecordTable(NamedTuple):
    """Columns of a data set, one for each field of `Record`."""

    image: Strings
    label: Categories
    split: Categories
    boxes: BoxTable | None
    masks: Strings  # paths, separated by newlines
    ignore: Strings
    domain: Categories
    attributes: Mapping[str, Categories]
    caption: Strings
    labels: LabelSets | None = None  # None: every image has one class at most

    def record(self, row: int) -> Record:
        masks, labels = self.masks[row], None
        if self.labels is not None and self.labels.known[row]:
            labels = tuple(self.label.names[code] for code in self.labels.of_row(row))
        attributes = {key: column[row] for key, column in self.attributes.items()}
        return Record(
            image=self.image[row] or "",
            label=self.label[row],
            split=self.split[row],
            boxes=() if self.boxes is None else self.boxes.of_row(row),
            masks=tuple(masks.split("\n")) if masks else (),
            ignore=self.ignore[row],
            domain=self.domain[row],
            attributes={key: value for key, value in attributes.items() if value is not None},
            caption=self.caption[row],
            labels=labels,
        )


class RecordTableBuilder:
    """Collects records into columns."""

    def __init__(self) -> None:
        self.rows = 0
        self.strings = {key: StringsBuilder() for key in ("image", "masks", "ignore", "caption")}
        self.names = {key: CategoriesBuilder() for key in ("split", "domain")}
        self.image_labels, self.without_class = CategoriesBuilder(), array("q")
        self.attributes: defaultdict[str, CategoriesBuilder] = defaultdict(CategoriesBuilder)
        self.box_rows, self.corners, self.flags = array("q"), array("d"), array("B")
        self.box_labels = CategoriesBuilder()

    @property
    def labels(self) -> set[str]:
        return {*self.image_labels.index, *self.box_labels.index}

    def add(self, record: Record) -> None:
        row, split = self.rows, record.split
        self.rows += 1
        values = record._asdict() | {
            "masks": "\n".join(record.masks) or None,
            "split": split and SPLITS.get(split.lower(), split),
        }
        columns: dict[str, Any] = {**self.strings, **self.names}
        for key, column in columns.items():
            if values[key] is not None:
                column.put(row, values[key])
        labels = record.labels
        if labels is None and record.label is not None:
            labels = (record.label,)
        for name in dict.fromkeys(labels or ()):
            self.image_labels.put(row, name)
        if labels == ():
            self.without_class.append(row)
        for key, value in record.attributes.items():
            self.attributes[key].put(row, value)
        for box in record.boxes:
            if box.label is not None:
                self.box_labels.put(len(self.flags), box.label)
            self.box_rows.append(row)
            self.corners.extend(box[:4])
            self.flags.append(box.difficult | box.truncated << 1 | box.crowd << 2)

    def build(self, classes: list[str]) -> RecordTable:
        """Return the table, its labels numbered by `classes`."""
        counts = np.bincount(np.array(self.box_rows, np.int64), minlength=self.rows)
        boxes = BoxTable(
            counts.cumsum(),
            np.array(self.corners).reshape(-1, 4),
            self.box_labels.build(len(self.flags), classes),
            np.array(self.flags, np.uint8),
        )
        labels, label_sets = self.image_labels, None
        per_row = np.bincount(np.array(labels.rows, np.int64), minlength=self.rows)
        if per_row.max(initial=0) > 1:
            known = per_row > 0
            known[np.array(self.without_class)] = True
            label_sets = LabelSets(per_row.cumsum(), labels.codes_in(classes), known)
            labels = CategoriesBuilder()
        return RecordTable(
            label=labels.build(self.rows, classes),
            labels=label_sets,
            split=self.names["split"].build(self.rows),
            domain=self.names["domain"].build(self.rows),
            boxes=boxes if self.flags else None,
            attributes={key: column.build(self.rows) for key, column in self.attributes.items()},
            **{key: column.build(self.rows) for key, column in self.strings.items()},
        )


def natural(name: str) -> tuple[int, int, str]:
    """Return a sort key that puts "2" before "10", and both before words."""
    if name.isascii() and name.isdigit():
        return 0, int(name), name
    return 1, 0, name
