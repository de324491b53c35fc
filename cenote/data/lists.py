"""CSV, TSV, JSON, JSONL and text lists: one image per line, annotations in the other columns."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from .checks import check, check_entries, errors_in
from .csv_files import unquote_formula
from .dataset import Dataset, pack
from .images import is_image_name
from .record import Box, Problem, Record, box_classes
from .table import natural

SUFFIXES = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json")
# Names of columns in use, the preferred name first.
COLUMNS = {
    "image": ("file", "path", "image", "filename", "file_name", "filepath", "image_path", "img"),
    "label": (
        *("class_name", "label", "class", "category", "label_name", "class_id"),
        *("labels", "classes", "class_names", "categories"),
    ),
    "split": ("split", "subset", "partition", "set"),
    "masks": ("masks", "mask", "mask_path", "trimap", "segmentation"),
    "ignore": ("ignore", "ignore_mask"),
    "domain": ("domain", "style"),
    "caption": ("caption", "text"),
    "boxes": ("boxes", "bboxes", "box", "bbox"),
}
TEXT_COLUMNS = ("image", "split", "ignore", "domain", "caption")
# Between the classes in a cell: in a column of this name any of ; , |, otherwise only |.
PLURAL = ("labels", "classes", "class_names", "categories")
CORNERS = (
    ("x1", "y1", "x2", "y2"),
    ("xmin", "ymin", "xmax", "ymax"),
    ("left", "top", "right", "bottom"),
)
NO_ATTRIBUTES = {
    *("w", "h", "width", "height", "id", "image_id", "class_id", "index"),
    *("attributes", "polygons", ""),
}
ABSENT = "\0"  # in place of a column's name
TOO_DEEP = "its JSON is nested too deeply"
MAX_VALUES = 10_000  # of an attribute; a column with more is an identifier

Row = Mapping[str, Any]
NumberedRow = tuple[int, Row | Problem]


def read_list(path: Path) -> Dataset:
    """Read a list; paths are relative to its folder.

    Adjacent lines of one image become one record with all their boxes and classes. Corner columns may have a
    prefix (`head_x1`): those without a prefix are read, or else the first. Columns without another
    meaning become attributes.
    """
    path = Path(path)
    reader = _ListReader(path)
    dataset = pack(
        reader.records(_rows(path)),
        path.parent,
        path.resolve().parent.name,
        class_order=lambda label: reader.class_order.get(label, natural(label)),
    )
    problems = dataset.problems or ["it has no lines"]
    check(len(dataset), f"{path} contains no image: {problems[0]}")
    return dataset


class _ListReader:
    """Maps columns to the fields of records."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.class_order: dict[str, tuple[int, int, str]] = {}  # by class_id, where there is one
        self.columns: dict[str, None] = {}
        self.attributes: dict[str, set[str]] = {}  # columns, with their values
        self.identifiers: set[str] = set()  # columns with too many values

    def learn(self, columns: Iterable[str]) -> None:
        """Find the meaning of columns. Lines of JSON may add columns at any time."""
        self.columns.update(dict.fromkeys(columns))
        plain = {column.strip().lower(): column for column in self.columns}
        self.names = {
            key: next((plain[n] for n in names if n in plain), ABSENT)
            for key, names in COLUMNS.items()
        }
        expected, names = ", ".join(COLUMNS["image"]), ", ".join([*self.columns][:12])
        check(
            self.names["image"] != ABSENT,
            f"{self.path} has no column of images (one of {expected}): found {names}",
        )
        self.class_id = plain.get("class_id", ABSENT)
        self.corners = _corner_columns(plain)
        used = {*self.names.values(), *self.corners}
        for name, column in plain.items():
            is_corner = any(name.endswith(names) for names in CORNERS)
            if column not in used and name not in NO_ATTRIBUTES and not is_corner:
                self.attributes.setdefault(column, set())

    def records(self, rows: Iterable[NumberedRow]) -> Iterator[Record | Problem]:
        previous: Record | None = None  # yielded when a line of another image follows
        for line, row in rows:
            record = self._parse(line, row)
            if isinstance(record, Problem):
                yield record
            elif previous is None or previous.image != record.image:
                if previous is not None:
                    yield previous
                previous = record
            elif not record.boxes and not {*_classes(record)} <= {*_classes(previous)}:
                above, here = (", ".join(map(repr, _classes(r))) for r in (previous, record))
                labels = f"{above} above and {here} here (several classes in a cell: a|b)"
                yield Problem(f"{self.path}, line {line}: {previous.image} is {labels}")
            else:
                previous = _join(previous, record)
        if previous is not None:
            yield previous
        for column in sorted(self.identifiers):
            yield Problem(f"{self.path}: column '{column}' has over {MAX_VALUES} values, skipped")

    def _parse(self, line: int, row: Row | Problem) -> Record | Problem:
        if isinstance(row, Problem):
            return Problem(f"{self.path}, line {line}: {row.message}")
        if not row.keys() <= self.columns.keys():
            self.learn(row)
        try:
            return self._record(row)
        except (ValueError, TypeError, AttributeError, LookupError, OverflowError) as error:
            return Problem(f"{self.path}, line {line}: {error}")
        except RecursionError:
            return Problem(f"{self.path}, line {line}: {TOO_DEEP}")

    def _record(self, row: Row) -> Record:
        texts = {key: _text(row.get(self.names[key])) for key in TEXT_COLUMNS}
        image, boxes = texts.pop("image"), tuple(self._boxes(row))
        check(image, "no image")
        label, labels = None, self._labels(row)
        if labels is None and self.names["label"] == ABSENT and self.names["boxes"] != ABSENT:
            labels = box_classes(boxes)
        elif labels is not None and len(labels) == 1:
            label, labels = labels[0], None
        number = _text(row.get(self.class_id))
        if label and number and number.isdigit():
            self.class_order.setdefault(label, (0, int(number), label))
        masks = row.get(self.names["masks"]) or ()
        return Record(
            image or "",
            label=label,
            labels=labels,
            boxes=boxes,
            masks=(masks,) if isinstance(masks, str) else tuple(masks),
            attributes=self._attributes(row),
            **texts,
        )

    def _labels(self, row: Row) -> tuple[str, ...] | None:
        """Return the classes of a line; None where the cell is empty."""
        column = self.names["label"]
        cell = row.get(column)
        if not isinstance(cell, list):
            text = _text(cell)
            separators = "[|;,]" if column.strip().lower() in PLURAL else "[|]"
            cell = None if text is None else re.split(separators, text)
        return None if cell is None else tuple(filter(None, map(_text, cell)))

    def _boxes(self, row: Row) -> Iterator[Box]:
        corners = [row.get(column) for column in self.corners]
        if any(_text(corner) for corner in corners):
            yield _box(corners)
        boxes = row.get(self.names["boxes"]) or ()
        if isinstance(boxes, str):
            boxes = json.loads(boxes)
        if boxes and isinstance(boxes[0], int | float):
            boxes = [boxes]
        for box in boxes:
            if isinstance(box[0], str):  # class, x1, y1, x2, y2
                yield _box(box[1:5], box[0])
            else:
                yield _box(box[:4])

    def _attributes(self, row: Row) -> dict[str, str]:
        objects = row.get("attributes") or {}
        attributes = {key: str(value) for key, value in objects.items() if value is not None}
        for column, values in self.attributes.items():
            text = _text(row.get(column))
            if text and column not in self.identifiers:
                values.add(text)
                attributes[column] = text
                if len(values) > MAX_VALUES:
                    self.identifiers.add(column)
        return attributes


def _text(value: Any) -> str | None:
    return None if value is None else str(value).strip() or None


def _join(first: Record, record: Record) -> Record:
    """Join lines of one image; boxes of lines of different classes carry their own."""
    labels = first.labels
    if (first.label, first.labels) != (record.label, record.labels):
        labels = tuple(dict.fromkeys((*_classes(first), *_classes(record))))
        first, record = _with_box_labels(first), _with_box_labels(record)
    masks = tuple(dict.fromkeys((*first.masks, *record.masks)))
    return first._replace(boxes=first.boxes + record.boxes, masks=masks, labels=labels)


def _classes(record: Record) -> tuple[str, ...]:
    return record.labels or (() if record.label is None else (record.label,))


def _with_box_labels(record: Record) -> Record:
    """Move the class of an image to its boxes."""
    if record.label is None:
        return record
    boxes = (box if box.label else box._replace(label=record.label) for box in record.boxes)
    return record._replace(label=None, boxes=tuple(boxes))


def _box(corners: Sequence[Any], label: str | None = None) -> Box:
    values = ", ".join(map(str, corners))
    complete = len(corners) == 4 and None not in corners
    check(complete, f"a box needs four corners x1, y1, x2, y2, got {values}")
    x1, y1, x2, y2 = (float(value) for value in corners)
    check(x1 < x2 and y1 < y2, f"a box needs x1 < x2 and y1 < y2, got {values}")  # also for NaN
    return Box(x1, y1, x2, y2, label)


def _corner_columns(plain: Mapping[str, str]) -> tuple[str, ...]:
    """Return the four columns of corners without a prefix, or else the first with one."""
    by_prefix: dict[str, tuple[str, ...]] = {}
    for names in CORNERS:
        for column in plain:
            prefix = column.removesuffix(names[0])
            if column.endswith(names[0]) and all(prefix + n in plain for n in names):
                by_prefix.setdefault(prefix, tuple(plain[prefix + n] for n in names))
    return by_prefix.get("", next(iter(by_prefix.values()), ()))


def _rows(path: Path) -> Iterator[NumberedRow]:
    suffix = path.suffix.lower()
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        if suffix in (".jsonl", ".ndjson"):
            yield from _jsonl_rows(file)
        elif suffix == ".json":
            with errors_in(path):
                rows = json.load(file)
            yield from enumerate(check_entries(path, rows), 1)
        elif suffix == ".txt":
            yield from _text_rows(file)
        else:
            yield from _csv_rows(file)


def _text_rows(file: TextIO) -> Iterator[NumberedRow]:
    """Yield lines `PATH LABEL` or `PATH`; the path may contain spaces."""
    for line, text in enumerate(file, 1):
        image, _, label = text.strip().rpartition(" ")
        if not label:
            continue
        if not image or is_image_name(label):
            yield line, {"file": text.strip(), "label": None}
        else:
            yield line, {"file": image, "label": label}


def _csv_rows(file: TextIO) -> Iterator[NumberedRow]:
    delimiter = max(",;\t", key=file.readline().count)
    file.seek(0)
    reader = csv.DictReader((line.replace("\0", "") for line in file), delimiter=delimiter)
    try:
        for row in reader:
            if None in row:
                yield reader.line_num, Problem("more values than columns")
            else:
                yield reader.line_num, {k: v and unquote_formula(v) for k, v in row.items()}
    except csv.Error as error:
        yield reader.line_num, Problem(str(error))


def _jsonl_rows(file: TextIO) -> Iterator[NumberedRow]:
    for line, text in enumerate(file, 1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except ValueError as error:
            row = Problem(f"not JSON ({error})")
        except RecursionError:
            row = Problem(TOO_DEEP)
        if isinstance(row, dict | Problem):
            yield line, row
        else:
            yield line, Problem(f"not an object but {text.strip()[:40]}")
