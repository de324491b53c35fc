"""Hugging Face `datasets`: saved on disk, or by name on the hub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..extras import require
from .checks import LayoutError
from .dataset import Dataset, pack
from .images import BadImage, decode_mask, open_raw, read_image
from .record import Box, Problem, Record
from .table import Strings

# Names of columns in use, the preferred name first.
LABELS = ("label", "labels", "fine_label", "class", "category", "target")
MASKS = (
    *("mask", "masks", "segmentation", "segmentation_mask", "semantic_mask", "annotation"),
    "label",
)
CAPTIONS = ("caption", "captions", "text", "sentence", "description")
OBJECTS = ("objects", "annotations")
BOXES = ("bbox", "bboxes", "boxes", "box")
CATEGORIES = ("category", "categories", "label", "labels", "category_id")


def read_huggingface(name: str) -> Dataset:
    """Read a folder written by `save_to_disk`, or a hub name: USER/NAME or USER/NAME/CONFIG.

    Boxes in an `objects` column are x, y, width, height, as COCO's. No code of a data set is run.
    """
    library = require("datasets", extra="datasets")
    tables = _load(library, name)
    columns = _Columns(library, name, next(iter(tables.values())).features)
    dataset = pack(columns.records(tables), Path(name), name, columns.classes())
    keys = [key for key in (columns.image, columns.mask) if key]
    table = library.concatenate_datasets([split.select_columns(keys) for split in tables.values()])
    for key in keys:
        table = table.cast_column(key, library.Image(decode=False))
    dataset.pixels = _HuggingFacePixels(name, dataset.table.image, table, columns)
    return dataset


def _load(library: Any, name: str) -> Mapping[str, Any]:
    folder = Path(name).expanduser()
    expected = "a folder of save_to_disk"
    try:
        if folder.is_dir():
            loaded = library.load_from_disk(str(folder))
        else:
            expected += " or USER/NAME on the hub"
            *repository, config = [*name.split("/", 2), None, None][:3]
            loaded = library.load_dataset("/".join(filter(None, repository)), config or None)
    except Exception as error:  # network, hub, Arrow, ...: any error
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise LayoutError(f"hf:{name} cannot be opened: expected {expected}; {reason}") from error
    if not isinstance(loaded, dict):
        loaded = {str(loaded.split or "all"): loaded}
    tables = {split: table for split, table in loaded.items() if len(table)}
    if not tables:
        raise LayoutError(f"hf:{name} is empty: expected rows with an image column")
    return tables


class _Columns:
    """Maps columns to the fields of records."""

    def __init__(self, library: Any, name: str, features: Mapping[str, Any]) -> None:
        self.name, self.features = name, features
        images = [key for key, kind in features.items() if isinstance(kind, library.Image)]
        if not images:
            columns = ", ".join(f"{key} ({type(kind).__name__})" for key, kind in features.items())
            raise LayoutError(
                f"hf:{name} contains no images: expected a column of type Image, found {columns}"
            )
        self.image = next((key for key in ("image", "img") if key in images), images[0])
        self.mask = next((key for key in MASKS if key in images and key != self.image), None)
        other = {key: kind for key, kind in features.items() if key not in images}
        classes = [key for key, kind in other.items() if isinstance(kind, library.ClassLabel)]
        named = [key for key in LABELS if key in classes or _is_word(other.get(key))]
        self.label = next(iter([*named, *classes]), None)
        self.attributes = [key for key in classes if key != self.label]
        self.caption = next((key for key in CAPTIONS if key in other and key != self.label), None)
        self.objects = next((key for key in OBJECTS if _first(_inner(other.get(key)), BOXES)), None)
        inner = _inner(features.get(self.objects or ""))
        self.corners, self.category = _first(inner, BOXES), _first(inner, CATEGORIES)
        self.box_classes = _class_names(inner.get(self.category or ""))

    def classes(self) -> list[str] | None:
        """Return the classes that the data set declares, None if it declares none."""
        declared = []
        if self.label:
            declared.append(_class_names(self.features[self.label]))
        if self.objects:
            declared.append(self.box_classes)
        if not all(declared):
            return None
        return list(dict.fromkeys(name for names in declared for name in names or ())) or None

    def records(self, tables: Mapping[str, Any]) -> Iterator[Record | Problem]:
        keys = [key for key in (self.label, self.caption, self.objects, *self.attributes) if key]
        for split, table in tables.items():
            rows = table.select_columns(keys) if keys else ({} for _ in range(len(table)))
            for number, row in enumerate(rows):
                boxes = list(self._boxes(row))
                for box in boxes:
                    if isinstance(box, str):
                        yield Problem(f"hf:{self.name}, {split}, row {number}: {box}")
                words = {
                    key: _category(row[key], _class_names(self.features[key]))
                    for key in (self.label, *self.attributes)
                    if key
                }
                label = words.pop(self.label or "", None)
                caption = row.get(self.caption)
                if isinstance(caption, list):
                    caption = "\n".join(map(str, caption))
                yield Record(
                    f"{split}/{number}",
                    label,
                    split,
                    tuple(box for box in boxes if isinstance(box, Box)),
                    attributes={key: word for key, word in words.items() if word is not None},
                    caption=caption or None,
                )

    def _boxes(self, row: Mapping[str, Any]) -> Iterator[Box | str]:
        """Yield boxes, or a message in place of a box."""
        objects = row.get(self.objects or "")
        if not objects:
            return
        if isinstance(objects, list):  # of dicts, in place of a dict of lists
            objects = {key: [item[key] for item in objects] for key in objects[0]}
        boxes = objects[self.corners]
        labels = objects[self.category] if self.category else [None] * len(boxes)
        for box, label in zip(boxes, labels, strict=False):
            try:
                x, y, width, height = (float(value) for value in box)
            except (TypeError, ValueError):
                yield f"a box is not four numbers: {box}"
                continue
            if width > 0 and height > 0:
                yield Box(x, y, x + width, y + height, _category(label, self.box_classes))
            else:
                yield f"a box is {width:g} x {height:g} pixels"


class _HuggingFacePixels:
    """Images and masks as the tables store them: encoded bytes or paths, decoded here."""

    def __init__(self, name: str, rows: Strings, table: Any, columns: _Columns) -> None:
        self.name, self.rows, self.table = name, rows, table
        self.image_key, self.mask_key = columns.image, columns.mask

    def image(self, row: int) -> Image.Image:
        with self._stored(row, self.image_key) as (path, content):
            return read_image(path, content=content)

    def mask(self, row: int) -> npt.NDArray[np.uint8] | None:
        if self.mask_key is None:
            return None
        with self._stored(row, self.mask_key) as (path, content):
            return decode_mask(open_raw(path, content=content))

    @contextmanager
    def _stored(self, row: int, key: str) -> Iterator[tuple[Path, bytes | None]]:
        """Yield path and bytes of a cell; a BadImage inside names the row."""
        stored = self.table[row][key] or {}
        try:
            yield Path(stored.get("path") or "image"), stored.get("bytes")
        except BadImage as error:
            split, _, number = (self.rows[row] or "").rpartition("/")
            place = f"hf:{self.name}, {split}, row {number}, {key}"
            raise BadImage(place, error.reason if stored else "there is none") from error


def _element(kind: Any) -> Any:
    if isinstance(kind, list) and kind:
        return kind[0]
    return getattr(kind, "feature", kind)


def _inner(kind: Any) -> Mapping[str, Any]:
    kind = _element(kind)
    return kind if isinstance(kind, dict) else {}


def _first(columns: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in columns), None)


def _is_word(kind: Any) -> bool:
    return str(getattr(kind, "dtype", "")).startswith(("string", "int", "uint", "bool"))


def _class_names(kind: Any) -> list[str] | None:
    """Return the names of a class label, or of a list of them."""
    return list(getattr(_element(kind), "names", None) or ()) or None


def _category(value: Any, names: list[str] | None) -> str | None:
    if value is None or (names and not 0 <= value < len(names)):
        return None  # -1: a test set hides its classes
    return names[value] if names else str(value)
