"""Hugging Face `datasets`: saved on disk, or by name on the hub."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..extras import require
from .dataset import Dataset
from .images import BadImage, open_raw, read_image
from .masks import decoded
from .packing import pack
from .record import Box, Problem, Record
from .trees import WrongTree

# What people call their columns, the name to prefer first.
LABELS = ("label", "labels", "fine_label", "class", "category", "target")
MASKS = (
    "mask",
    "masks",
    "segmentation",
    "segmentation_mask",
    "semantic_mask",
    "annotation",
    "label",
)
CAPTIONS = ("caption", "captions", "text", "sentence", "description")
OBJECTS = ("objects", "annotations")
BOXES, CATEGORIES = (
    ("bbox", "bboxes", "boxes", "box"),
    ("category", "categories", "label", "labels", "category_id"),
)


def read_huggingface(name: str) -> Dataset:
    """A folder written by `save_to_disk`, or a name on the hub: USER/NAME or USER/NAME/CONFIG.

    Boxes in an `objects` column are x, y, width, height, as COCO's. No code of a data set is ever run.
    """
    library = require("datasets", extra="datasets")
    tables = _load(library, name)
    columns = _Columns(library, name, next(iter(tables.values())).features)
    dataset = pack(columns.records(tables), Path(name), name, columns.classes())
    dataset.pixels = _Pixels(library, name, tables, columns)
    return dataset


def _load(library: Any, name: str) -> dict[str, Any]:
    """Tables by split."""
    folder = Path(name).expanduser()
    try:
        if folder.is_dir():
            loaded = library.load_from_disk(str(folder))
        else:
            user, _, rest = name.partition("/")
            repository, _, config = rest.partition("/")
            loaded = library.load_dataset(f"{user}/{repository}" if rest else user, config or None)
    except Exception as error:  # from the network, the hub, Arrow, ...: anything
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        wanted = (
            "a folder of save_to_disk"
            if folder.is_dir()
            else "a folder of save_to_disk or USER/NAME on the hub"
        )
        raise WrongTree(f"hf:{name} could not be opened: expected {wanted}; {reason}") from error
    tables = dict(loaded) if isinstance(loaded, dict) else {str(loaded.split or "all"): loaded}
    tables = {split: table for split, table in tables.items() if len(table)}
    if not tables:
        raise WrongTree(f"hf:{name} is empty: expected rows with an image column, found none")
    return tables


class _Columns:
    """Which column means what."""

    def __init__(self, library: Any, name: str, features: Mapping[str, Any]) -> None:
        self.library, self.name, self.features = library, name, features
        images = [key for key, kind in features.items() if isinstance(kind, library.Image)]
        if not images:
            found = ", ".join(f"{key} ({type(kind).__name__})" for key, kind in features.items())
            raise WrongTree(
                f"hf:{name} holds no images: expected a column of the type Image, found {found}"
            )
        self.image = next((key for key in ("image", "img") if key in images), images[0])
        self.mask = next((key for key in MASKS if key in images and key != self.image), None)
        plain = {key: kind for key, kind in features.items() if key not in images}
        classes = [key for key, kind in plain.items() if isinstance(kind, library.ClassLabel)]
        named = [key for key in LABELS if key in plain and (key in classes or _is_word(plain[key]))]
        self.label = next(iter([*named, *classes]), None)
        self.attributes = [key for key in classes if key != self.label]
        self.caption = next((key for key in CAPTIONS if key in plain and key != self.label), None)
        self.objects = next(
            (key for key in OBJECTS if key in plain and _first(_inner(plain[key]), BOXES)), None
        )

    def classes(self) -> list[str] | None:
        """As the data set declares them; None if it does not."""
        found = [_class_names(self.features[self.label])] if self.label else []
        if self.objects:
            inner = _inner(self.features[self.objects])
            found.append(_class_names(inner.get(_first(inner, CATEGORIES) or "")))
        if not found or not all(found):
            return None
        return list(dict.fromkeys(name for names in found for name in names or ()))

    def records(self, tables: Mapping[str, Any]) -> Iterator[Record | Problem]:
        wanted = [key for key in (self.label, self.caption, self.objects, *self.attributes) if key]
        for split, table in tables.items():
            name = {"validation": "val"}.get(split, split)
            rows = table.select_columns(wanted) if wanted else ({} for _ in range(len(table)))
            for number, row in enumerate(rows):
                boxes = []
                for box in self._boxes(row):
                    if isinstance(box, Box):
                        boxes.append(box)
                    else:
                        yield Problem(f"hf:{self.name}, {split}, row {number}: {box}")
                attributes = {
                    key: word
                    for key in self.attributes
                    if (word := self._word(key, row)) is not None
                }
                label = self._word(self.label, row) if self.label else None
                caption = _text(row.get(self.caption)) if self.caption else None
                yield Record(
                    f"{split}/{number}",
                    label,
                    name,
                    tuple(boxes),
                    attributes=attributes,
                    caption=caption,
                )

    def _word(self, key: str, row: Mapping[str, Any]) -> str | None:
        return _category(row.get(key), _class_names(self.features[key]))

    def _boxes(self, row: Mapping[str, Any]) -> Iterator[Box | str]:
        """Or a sentence in the place of one."""
        found = row.get(self.objects or "")
        if not found:
            return
        inner = _inner(self.features[self.objects or ""])
        corners, category = _first(inner, BOXES) or "", _first(inner, CATEGORIES)
        names = _class_names(inner.get(category or ""))
        if isinstance(found, list):  # of dicts, in place of a dict of lists
            found = {key: [item[key] for item in found] for key in found[0]}
        labels = found[category] if category else [None] * len(found[corners])
        for box, label in zip(found[corners], labels, strict=False):
            try:
                x, y, width, height = (float(value) for value in box)
            except (TypeError, ValueError):
                yield f"a box is not four numbers: {box}"
                continue
            if width > 0 and height > 0:
                yield Box(x, y, x + width, y + height, _category(label, names))
            else:
                yield f"a box is {width:g} x {height:g} pixels"


class _Pixels:
    """Images and masks as the tables store them: encoded bytes or paths, decoded here."""

    def __init__(
        self, library: Any, name: str, tables: Mapping[str, Any], columns: _Columns
    ) -> None:
        self.name, self.keys = name, [key for key in (columns.image, columns.mask) if key]
        self.has_mask = columns.mask is not None
        self.splits = list(tables)
        self.tables: list[Any] = []
        self.ends: list[int] = []
        for table in tables.values():
            kept = table.select_columns(self.keys)
            for key in self.keys:
                kept = kept.cast_column(key, library.Image(decode=False))
            self.tables.append(kept)
            self.ends.append(len(kept) + (self.ends[-1] if self.ends else 0))

    def image(self, row: int) -> Image.Image:
        with self._stored(row, self.keys[0]) as (path, content):
            return read_image(path, content=content)

    def mask(self, row: int) -> npt.NDArray[np.uint8] | None:
        if not self.has_mask:
            return None
        with self._stored(row, self.keys[1]) as (path, content):
            return decoded(open_raw(path, content=content))

    @contextmanager
    def _stored(self, row: int, key: str) -> Iterator[tuple[Path, bytes | None]]:
        """What is wrong with it is said of the row."""
        number = bisect_right(self.ends, row)
        place = row - (self.ends[number - 1] if number else 0)
        stored = self.tables[number][place][key] or {}
        try:
            yield Path(stored.get("path") or "image"), stored.get("bytes")
        except BadImage as error:
            where = f"hf:{self.name}, {self.splits[number]}, row {place}, {key}"
            raise BadImage(where, error.reason if stored else "there is none") from error


def _inner(kind: Any) -> Mapping[str, Any]:
    """The columns inside a column of objects."""
    kind = kind[0] if isinstance(kind, list) and kind else getattr(kind, "feature", kind)
    return kind if isinstance(kind, dict) else {}


def _first(found: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in found), None)


def _is_word(kind: Any) -> bool:
    return str(getattr(kind, "dtype", "")).startswith(("string", "int", "uint", "bool"))


def _class_names(kind: Any) -> list[str] | None:
    """Of a class label, or of a list of them."""
    kind = kind[0] if isinstance(kind, list) and kind else getattr(kind, "feature", kind)
    names = getattr(kind, "names", None)
    return list(names) if names else None


def _category(value: Any, names: list[str] | None) -> str | None:
    if value is None or (
        names and not 0 <= value < len(names)
    ):  # -1 where a test set hides its classes
        return None
    return names[value] if names else str(value)


def _text(value: Any) -> str | None:
    """Several captions are one a line."""
    return ("\n".join(str(part) for part in value) if isinstance(value, list) else value) or None
