"""CSV, TSV, JSON, JSONL and text lists: one image a line, and whatever truth the columns name."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .columns import natural
from .dataset import Dataset
from .images import SUFFIXES as IMAGES
from .masks import MaskCodes
from .packing import pack
from .record import Box, Problem, Record

SUFFIXES = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json")
# What people call their columns, the name to prefer first.
NAMES = {
    "image": ("file", "path", "image", "filename", "file_name", "filepath", "image_path", "img"),
    "label": ("class_name", "label", "class", "category", "label_name", "class_id"),
    "split": ("split", "subset", "partition", "set"),
    "masks": ("masks", "mask", "mask_path", "trimap", "segmentation"),
    "ignore": ("ignore", "ignore_mask"),
    "domain": ("domain", "style"),
    "caption": ("caption", "text"),
    "boxes": ("boxes", "bboxes", "box", "bbox"),
}
TEXTS = ("image", "label", "split", "ignore", "domain", "caption")
CORNERS = (
    ("x1", "y1", "x2", "y2"),
    ("xmin", "ymin", "xmax", "ymax"),
    ("left", "top", "right", "bottom"),
)
BOOKKEEPING = {
    "w",
    "h",
    "width",
    "height",
    "id",
    "image_id",
    "class_id",
    "index",
    "attributes",
    "polygons",
}
MOST_VALUES = 10_000  # of an attribute; a column with more is an identifier

Row = Mapping[str, Any]


def read_list(
    path: Path, name: str | None = None, box: str | None = None, mask_codes: MaskCodes = "object"
) -> Dataset:
    """Paths are relative to the list's folder. Adjacent lines of one image are one record with all their boxes.

    Corner columns may have a prefix (`head_x1`): `box` chooses one, by default the plain ones or else the first.
    Columns with no other meaning become attributes.
    """
    path = Path(path)
    order: dict[str, tuple[int, int, str]] = {}
    dataset = pack(
        _Reading(path, box, order).records(_rows(path)),
        path.parent,
        name or path.resolve().parent.name,
        mask_codes=mask_codes,
        class_order=lambda label: order.get(label, natural(label)),
    )
    if not len(dataset):
        raise ValueError(
            f"{path} names no image: {dataset.problems[0] if dataset.problems else 'it has no lines'}"
        )
    return dataset


class _Reading:
    """Which column means what, and the records they make."""

    def __init__(self, path: Path, box: str | None, order: dict[str, tuple[int, int, str]]) -> None:
        self.path, self.box, self.order = path, box, order
        self.columns: dict[str, None] = {}
        self.kept: dict[str, set[str]] = {}  # attributes, with the values seen
        self.too_many: set[str] = set()

    def learn(self, columns: Iterable[str]) -> None:
        """What the columns mean. Lines of JSON may bring new ones at any time."""
        self.columns.update(dict.fromkeys(columns))
        plain = {column.strip().lower(): column for column in self.columns}
        self.names = {
            key: next((plain[n] for n in names if n in plain), "") for key, names in NAMES.items()
        }
        if not self.names["image"]:
            known, found = ", ".join(NAMES["image"]), ", ".join([*self.columns][:12])
            raise ValueError(f"{self.path} has no column of images (one of {known}): found {found}")
        self.number = (
            plain.get("class_id") if self.names["label"] != plain.get("class_id") else None
        )
        self.texts = [(key, self.names[key]) for key in TEXTS if self.names[key]]
        self.corners = _corners(self.path, plain, self.box)
        self.boxed = bool(self.corners or self.names["boxes"])
        used = {*self.names.values(), *self.corners}
        for column in self.columns:
            if column not in used and not _is_bookkeeping(column.strip().lower()):
                self.kept.setdefault(column, set())
        self.described = bool(self.kept) or "attributes" in plain

    def records(self, rows: Iterable[tuple[int, Row | Problem]]) -> Iterator[Record | Problem]:
        held: Record | None = None  # until a line of another image comes
        for line, row in rows:
            if not isinstance(row, Problem) and not row.keys() <= self.columns.keys():
                self.learn(row)
            try:
                record = row if isinstance(row, Problem) else self._record(row)
            except (ValueError, TypeError, AttributeError) as error:
                record = Problem(f"{self.path}, line {line}: {error}")
            if isinstance(record, Problem):
                yield record
            elif held is not None and held.image == record.image:
                if record.label != held.label and not record.boxes:
                    told = f"{held.image} is '{held.label}' above and '{record.label}' here"
                    yield Problem(f"{self.path}, line {line}: {told}")
                    continue
                held = _joined(held, record)
            else:
                if held is not None:
                    yield held
                held = record
        if held is not None:
            yield held
        for column in sorted(self.too_many):
            yield Problem(
                f"{self.path}: column '{column}' has over {MOST_VALUES} values and is left out"
            )

    def _record(self, row: Row) -> Record:
        text = {
            key: str(value).strip() or None
            for key, column in self.texts
            if (value := row.get(column)) is not None
        }
        image, label = text.pop("image", None), text.get("label")
        if image is None:
            raise ValueError("no image is named")
        if label is not None and self.number and str(row.get(self.number, "")).isdigit():
            self.order.setdefault(label, (0, int(row[self.number]), label))
        masks = row.get(self.names["masks"]) or ()
        return Record(
            image,
            boxes=tuple(self._boxes(row)) if self.boxed else (),
            masks=(masks,) if isinstance(masks, str) else tuple(masks),
            attributes=self._attributes(row) if self.described else {},
            **text,
        )

    def _boxes(self, row: Row) -> Iterator[Box]:
        if self.corners and any(str(row.get(c) or "").strip() for c in self.corners):
            yield _box([row.get(c) for c in self.corners])
        listed = row.get(self.names["boxes"]) or ()
        listed = json.loads(listed) if isinstance(listed, str) else listed
        for item in [listed] if listed and isinstance(listed[0], int | float) else listed:
            named = isinstance(item[0], str)
            yield _box(item[1:5] if named else item[:4], str(item[0]) if named else None)

    def _attributes(self, row: Row) -> dict[str, str]:
        found = {
            key: str(value)
            for key, value in (row.get("attributes") or {}).items()
            if value is not None
        }
        for column, values in self.kept.items():
            value = str(row.get(column) if row.get(column) is not None else "").strip()
            if value and column not in self.too_many:
                values.add(value)
                found[column] = value
                if len(values) > MOST_VALUES:
                    self.too_many.add(column)
        return found


def _joined(held: Record, record: Record) -> Record:
    """Lines of one image: boxes of another class than the first line's carry their own."""
    boxes = record.boxes
    if record.label != held.label:
        boxes = tuple(box if box.label else box._replace(label=record.label) for box in boxes)
    return held._replace(
        boxes=held.boxes + boxes, masks=tuple(dict.fromkeys((*held.masks, *record.masks)))
    )


def _box(corners: Any, label: str | None = None) -> Box:
    if len(corners) != 4 or any(value is None for value in corners):
        raise ValueError(
            f"a box has four corners x1, y1, x2, y2, got {', '.join(map(str, corners))}"
        )
    x1, y1, x2, y2 = (float(value) for value in corners)
    if not (x1 < x2 and y1 < y2):  # also false for NaN
        raise ValueError(f"a box must have x1 < x2 and y1 < y2, got {x1:g}, {y1:g}, {x2:g}, {y2:g}")
    return Box(x1, y1, x2, y2, label)


def _corners(path: Path, plain: Mapping[str, str], box: str | None) -> tuple[str, ...]:
    """The four columns of the chosen box, or none."""
    found: dict[str, tuple[str, ...]] = {}
    for names in CORNERS:
        for column in plain:
            prefix = column.removesuffix(names[0])
            if column.endswith(names[0]) and all(prefix + n in plain for n in names):
                found.setdefault(prefix.rstrip("_"), tuple(plain[prefix + n] for n in names))
    if box is None:
        return found.get("", next(iter(found.values()), ()))
    if box not in found:
        raise ValueError(
            f"{path} has no box '{box}': {', '.join(found) or 'no columns of corners'}"
        )
    return found[box]


def _is_bookkeeping(column: str) -> bool:
    return column in BOOKKEEPING or any(column.endswith(names) for names in CORNERS)


def _rows(path: Path) -> Iterator[tuple[int, Row | Problem]]:
    """Lines with their numbers, as mappings."""
    suffix = path.suffix.lower()
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        if suffix in (".jsonl", ".ndjson"):
            for line, text in enumerate(file, 1):
                if text.strip():
                    yield line, _json_row(path, line, text)
        elif suffix == ".json":
            yield from _json_rows(path, file.read())
        elif suffix == ".txt":
            for line, text in enumerate(file, 1):
                image, _, label = text.strip().rpartition(" ")
                if (
                    os.path.splitext(label)[1].lower() in IMAGES
                ):  # no label, but the end of a name with spaces
                    image, label = text.strip(), ""
                if text.strip():
                    yield line, {"file": image or label, "label": label if image else None}
        else:
            yield from _csv_rows(path, file)


def _csv_rows(path: Path, file: Any) -> Iterator[tuple[int, Row | Problem]]:
    header = file.readline()
    delimiter = max(",;\t", key=header.count)
    file.seek(0)
    reader = csv.DictReader((line.replace("\0", "") for line in file), delimiter=delimiter)
    try:
        for row in reader:
            if None in row:
                yield (
                    reader.line_num,
                    Problem(f"{path}, line {reader.line_num}: more values than columns"),
                )
            else:
                yield reader.line_num, row
    except csv.Error as error:
        yield reader.line_num, Problem(f"{path}, line {reader.line_num}: {error}")


def _json_rows(path: Path, text: str) -> Iterator[tuple[int, Row | Problem]]:
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} is JSON, but neither COCO's nor a list of objects")
    yield from enumerate(rows, 1)


def _json_row(path: Path, line: int, text: str) -> Row | Problem:
    try:
        row = json.loads(text)
    except ValueError as error:
        return Problem(f"{path}, line {line}: not JSON ({error})")
    return (
        row
        if isinstance(row, dict)
        else Problem(f"{path}, line {line}: not an object but {text.strip()[:40]}")
    )
