"""Images with whatever labels exist: many rows, few objects."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from .columns import Categories, Strings
from .images import read_image
from .masks import MaskCodes, read_mask
from .record import Box, Query, Record


class Pixels(Protocol):
    """Where images and masks come from when they are not files."""

    def image(self, row: int) -> Image.Image: ...

    def mask(self, row: int) -> npt.NDArray[np.uint8] | None: ...


def images_are_files(pixels: Pixels | None) -> bool:
    """Whether `image` gives what lies at the record's path; a source of masks alone says `files = True`."""
    return pixels is None or bool(getattr(pixels, "files", False))


class Dataset(Sequence[Record]):
    """A sequence of records; `image` and `mask` open the files of one. `select` and `split` share the columns."""

    def __init__(self, columns: dict[str, Any], root: Path, name: str, classes: list[str]) -> None:
        self.columns, self.root, self.name, self.classes = columns, root, name, classes
        self.rows: npt.NDArray[np.int64] = np.arange(len(columns["label"]))
        self.pixels: Pixels | None = None
        self.mask_codes: MaskCodes = "object"
        self.queries: list[Query] = []
        self.problems: list[str] = []  # what the reader could not read

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Record:  # type: ignore[override]  # a slice is `select(range(...))`
        row, columns = int(self.rows[i]), self.columns
        masks = _at(columns["masks"], row)
        attributes = {
            key: column[row]
            for key, column in columns["attributes"].items()
            if column.codes[row] >= 0
        }
        return Record(
            image=_at(columns["image"], row) or "",
            label=columns["label"][row],
            split=columns["split"][row],
            boxes=tuple(self._boxes(row)),
            masks=tuple(masks.split("\n")) if masks else (),
            ignore=_at(columns["ignore"], row),
            domain=columns["domain"][row],
            attributes=attributes,
            caption=_at(columns["caption"], row),
        )

    def __iter__(self) -> Iterator[Record]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self)} images, {len(self.classes)} classes>"

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """Positions in `classes`, -1 where an image has no class."""
        return self.columns["label"].codes[self.rows].astype(np.int64)  # type: ignore[no-any-return]

    @property
    def has_masks(self) -> npt.NDArray[np.bool_]:
        """Which images have a mask; where pixels do not come from files, all may have one."""
        column = self.columns["masks"]
        if self.pixels or (column is not None and column.known is None):
            return np.ones(len(self), bool)
        return np.zeros(len(self), bool) if column is None else column.known[self.rows]

    @property
    def domains(self) -> Categories:
        return self._categories("domain")

    @property
    def splits(self) -> dict[str | None, int]:
        """Images in each split, in the order train, val, test, others; None for those in no split."""
        column = self._categories("split")
        counts = {
            ([*column.names, None])[code]: n for code, n in Counter(column.codes.tolist()).items()
        }
        usual = {name: place for place, name in enumerate(("train", "val", "test"))}
        return dict(
            sorted(counts.items(), key=lambda item: (usual.get(item[0] or "", 3), item[0] or ""))
        )

    def attribute(self, key: str) -> Categories:
        """One attribute of all images."""
        if key not in self.columns["attributes"]:
            raise ValueError(
                f"no attribute '{key}' in {self.name}: {', '.join(self.columns['attributes']) or 'none'}"
            )
        column = self.columns["attributes"][key]
        return Categories(column.codes[self.rows], column.names)

    def path(self, i: int) -> Path:
        """The image's file."""
        return self.root / (_at(self.columns["image"], int(self.rows[i])) or "")

    def image(self, i: int) -> Image.Image:
        """Upright 8-bit RGB; raises BadImage."""
        row = int(self.rows[i])
        if self.pixels:
            return self.pixels.image(row)
        return read_image(
            os.path.join(self.root, _at(self.columns["image"], row) or "")
        )  # a Path costs 30 µs more

    def mask(self, i: int) -> npt.NDArray[np.uint8] | None:
        """(H, W): 0 background, 1 object (or class ids, where `mask_codes` says so), 255 does not count."""
        if self.pixels:
            return self.pixels.mask(int(self.rows[i]))
        record = self[i]
        if not record.masks and not record.ignore:
            return None
        paths = [self.root / path for path in record.masks]
        return read_mask(
            paths, self.root / record.ignore if record.ignore else None, self.mask_codes
        )

    def split(self, name: str) -> Dataset:
        """The images of one split."""
        column = self.columns["split"]
        if name not in column.names:
            known = ", ".join(column.names) or "it has none"
            raise ValueError(f"{self.name} has no split '{name}': {known}")
        return self.select(np.flatnonzero(column.codes[self.rows] == column.names.index(name)))

    def select(self, positions: Iterable[int] | npt.NDArray[Any]) -> Dataset:
        """These images in this order; queries whose images are all among them come along."""
        chosen = np.asarray(positions if isinstance(positions, np.ndarray) else list(positions))
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        part = Dataset.__new__(type(self))
        part.__dict__.update(self.__dict__)
        part.rows = self.rows[chosen]
        if self.queries:
            places = {int(old): new for new, old in enumerate(chosen)}
            part.queries = [moved for query in self.queries if (moved := _moved(query, places))]
        return part

    def _categories(self, name: str) -> Categories:
        column = self.columns[name]
        return Categories(column.codes[self.rows], column.names)

    def _boxes(self, row: int) -> Iterator[Box]:
        if self.columns["boxes"] is None:
            return
        ends, corners, labels, flags = self.columns["boxes"]
        for k in range(ends[row - 1] if row else 0, ends[row]):
            x1, y1, x2, y2 = map(float, corners[k])
            yield Box(x1, y1, x2, y2, labels[k], *(bool(flags[k] >> bit & 1) for bit in range(3)))


def _at(column: Strings | None, row: int) -> str | None:
    return None if column is None else column[row]


def _moved(query: Query, places: dict[int, int]) -> Query | None:
    if query.image not in places:
        return None
    kept = {k: tuple(places[i] for i in found if i in places) for k, found in query.truth.items()}
    return query._replace(image=places[query.image], truth=kept)
