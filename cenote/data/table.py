"""Records in columns: a million of them in a handful of NumPy arrays.

A list of a million Python strings costs 100 MB, and worker processes copy it page by page because
reading a Python object writes its reference count. Forked workers share these arrays untouched.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .record import SPLITS, Box, Record

Ints = npt.NDArray[np.int64]


class Strings:
    """Column of strings, concatenated in one buffer; `present` is False where a value is None."""

    def __init__(
        self, text: npt.NDArray[np.uint8], ends: Ints, present: npt.NDArray[np.bool_] | None
    ) -> None:
        self.text, self.ends, self.present = text, ends, present

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> str | None:
        if self.present is not None and not self.present[row]:
            return None
        start = self.ends[row - 1] if row else 0
        encoded = self.text[start : self.ends[row]].tobytes()
        return encoded.decode("utf-8", "surrogateescape")  # a file name need not be UTF-8


class StringsBuilder:
    """Collects the strings of some rows, in order; the other rows are None."""

    def __init__(self) -> None:
        self.text, self.rows, self.lengths = bytearray(), array("q"), array("q")

    def put(self, row: int, value: str) -> None:
        encoded = value.encode("utf-8", "surrogateescape")
        self.text += encoded
        self.rows.append(row)
        self.lengths.append(len(encoded))

    def build(self, rows: int) -> Strings | None:
        """Return the column, or None if it has no value."""
        if not self.rows:
            return None
        positions, lengths = np.array(self.rows), np.zeros(rows, np.int64)
        lengths[positions] = self.lengths
        present = None
        if len(positions) < rows:
            present = np.zeros(rows, bool)
            present[positions] = True
        return Strings(np.frombuffer(bytes(self.text), np.uint8), lengths.cumsum(), present)


class Categories:
    """Column of few different strings: `codes` into `names`, -1 for None."""

    def __init__(self, codes: npt.NDArray[np.int32], names: list[str]) -> None:
        self.codes, self.names = codes, names

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str | None:
        code = self.codes[row]
        return self.names[code] if code >= 0 else None

    def select(self, rows: Ints) -> Categories:
        """Return the column of these rows."""
        return Categories(self.codes[rows], self.names)


class CategoriesBuilder:
    """Collects the names of some rows; the other rows are None."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.rows, self.codes = array("q"), array("i")

    def put(self, row: int, value: str) -> None:
        self.rows.append(row)
        self.codes.append(self.index.setdefault(value, len(self.index)))

    def build(self, rows: int, order: list[str] | None = None) -> Categories:
        """Return the column with its names in this order, by default sorted by `natural`."""
        names = list(self.index)
        order = sorted(names, key=natural) if order is None else order
        positions = {name: position for position, name in enumerate(order)}
        codes = np.full(rows, -1, np.int32)
        if names:
            lookup = np.array([positions[name] for name in names], np.int32)
            codes[np.array(self.rows)] = lookup[np.array(self.codes)]
        return Categories(codes, order)


class BoxTable(NamedTuple):
    """Boxes of all rows; row i has those from ends[i - 1] to ends[i]."""

    ends: Ints
    corners: npt.NDArray[np.float64]  # (N, 4)
    labels: Categories
    flags: npt.NDArray[np.uint8]  # bits: difficult, truncated, crowd


class RecordTable(NamedTuple):
    """Columns of a data set, one for each field of `Record`."""

    image: Strings
    label: Categories
    split: Categories
    boxes: BoxTable | None
    masks: Strings | None  # paths, separated by newlines
    ignore: Strings | None
    domain: Categories
    attributes: Mapping[str, Categories]
    caption: Strings | None

    def record(self, row: int) -> Record:
        """Return one row."""
        masks = _value(self.masks, row)
        attributes = {key: column[row] for key, column in self.attributes.items()}
        return Record(
            image=self.image[row] or "",
            label=self.label[row],
            split=self.split[row],
            boxes=self._boxes(row),
            masks=tuple(masks.split("\n")) if masks else (),
            ignore=_value(self.ignore, row),
            domain=self.domain[row],
            attributes={key: value for key, value in attributes.items() if value is not None},
            caption=_value(self.caption, row),
        )

    def _boxes(self, row: int) -> tuple[Box, ...]:
        if self.boxes is None:
            return ()
        ends, corners, labels, flags = self.boxes
        boxes = []
        for k in range(ends[row - 1] if row else 0, ends[row]):
            x1, y1, x2, y2 = corners[k].tolist()
            difficult, truncated, crowd = (bool(flags[k] >> bit & 1) for bit in range(3))
            boxes.append(Box(x1, y1, x2, y2, labels[k], difficult, truncated, crowd))
        return tuple(boxes)


class RecordTableBuilder:
    """Collects records into columns."""

    def __init__(self) -> None:
        self.rows = 0
        self.strings = {key: StringsBuilder() for key in ("image", "masks", "ignore", "caption")}
        self.names = {key: CategoriesBuilder() for key in ("label", "split", "domain")}
        self.attributes: defaultdict[str, CategoriesBuilder] = defaultdict(CategoriesBuilder)
        self.box_rows, self.corners, self.flags = array("q"), array("d"), array("B")
        self.box_labels = CategoriesBuilder()

    @property
    def labels(self) -> set[str]:
        """The classes of images and boxes so far."""
        return {*self.names["label"].index, *self.box_labels.index}

    def add(self, record: Record) -> None:
        image, label, split, boxes, masks, ignore, domain, attributes, caption = record
        row = self.rows
        self.rows += 1
        self.strings["image"].put(row, image)
        if label is not None:
            self.names["label"].put(row, label)
        if split is not None:
            self.names["split"].put(row, SPLITS.get(split.lower(), split))
        if domain is not None:
            self.names["domain"].put(row, domain)
        if masks:
            self.strings["masks"].put(row, "\n".join(masks))
        if ignore is not None:
            self.strings["ignore"].put(row, ignore)
        if caption is not None:
            self.strings["caption"].put(row, caption)
        for key, value in attributes.items():
            self.attributes[key].put(row, value)
        for box in boxes:
            if box.label is not None:
                self.box_labels.put(len(self.flags), box.label)
            self.box_rows.append(row)
            self.corners.extend(box[:4])
            self.flags.append(box.difficult | box.truncated << 1 | box.crowd << 2)

    def build(self, classes: list[str]) -> RecordTable:
        """Return the table, its labels numbered by `classes`."""
        boxes = None
        if self.flags:
            boxes = BoxTable(
                np.bincount(np.array(self.box_rows), minlength=self.rows).cumsum(),
                np.array(self.corners).reshape(-1, 4),
                self.box_labels.build(len(self.flags), classes),
                np.array(self.flags, np.uint8),
            )
        empty = Strings(np.zeros(0, np.uint8), np.zeros(0, np.int64), None)
        return RecordTable(
            image=self.strings["image"].build(self.rows) or empty,
            label=self.names["label"].build(self.rows, classes),
            split=self.names["split"].build(self.rows),
            boxes=boxes,
            masks=self.strings["masks"].build(self.rows),
            ignore=self.strings["ignore"].build(self.rows),
            domain=self.names["domain"].build(self.rows),
            attributes={key: column.build(self.rows) for key, column in self.attributes.items()},
            caption=self.strings["caption"].build(self.rows),
        )


def natural(name: str) -> tuple[int, int, str]:
    """Return a sort key that puts "2" before "10", and both before words."""
    if name.isascii() and name.isdigit():
        return 0, int(name), name
    return 1, 0, name


def _value(column: Strings | None, row: int) -> str | None:
    return None if column is None else column[row]
