"""The data set: images with whatever annotations exist."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from .checks import check
from .images import MaskCodes, read_image, read_mask
from .record import Problem, Record, RetrievalQuery
from .table import Categories, RecordTable, RecordTableBuilder, natural, readable_name

MAX_PROBLEMS = 1000  # messages kept; further problems are counted


class Pixels(Protocol):
    """Source of images and masks that are not files."""

    def image(self, row: int) -> Image.Image: ...

    def mask(self, row: int) -> npt.NDArray[np.uint8] | None: ...


def images_are_files(pixels: Pixels | None) -> bool:
    """Whether `image` reads the file at the record's path; a source of masks only sets `files`."""
    return pixels is None or bool(getattr(pixels, "files", False))


class Dataset(Sequence[Record]):
    """Sequence of records; `image` and `mask` read files. `select` and `split` share the table."""

    def __init__(self, table: RecordTable, root: Path, name: str, classes: list[str]) -> None:
        self.table, self.root, self.name, self.classes = table, root, name, classes
        self.rows: npt.NDArray[np.int64] = np.arange(len(table.label.codes))
        self.pixels: Pixels | None = None
        self.mask_codes: MaskCodes = "object"
        self.queries: list[RetrievalQuery] = []
        self.problems: list[str] = []  # what the reader could not read

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Record:  # type: ignore[override]  # no slices: use `select`
        return self.table.record(int(self.rows[i]))

    def __iter__(self) -> Iterator[Record]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self)} images, {len(self.classes)} classes>"

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """Positions in `classes`, -1 where an image has no class, or may have several."""
        return self.table.label.codes[self.rows].astype(np.int64)

    @property
    def multi_label(self) -> bool:
        """Whether images may have several classes: `targets` has them, `labels` is -1."""
        return self.table.labels is not None

    @property
    def labelled(self) -> npt.NDArray[np.bool_]:
        """Which images have known classes; they may be none of a multi-label data set."""
        return self.labels >= 0 if self.table.labels is None else self.table.labels.known[self.rows]

    @property
    def targets(self) -> npt.NDArray[np.int64] | npt.NDArray[np.bool_]:
        """What a classifier learns: `labels`, or the `class_matrix` of a multi-label data set."""
        return self.class_matrix if self.multi_label else self.labels

    @property
    def class_matrix(self) -> npt.NDArray[np.bool_]:
        """(images, classes): whether an image has a class."""
        matrix = np.zeros((len(self), len(self.classes) + 1), bool)  # the last column is for -1
        if self.table.labels is None:
            matrix[np.arange(len(self)), self.labels] = True
        else:
            for i, row in enumerate(self.rows):
                matrix[i, self.table.labels.of_row(row)] = True
        return matrix[:, :-1]

    @property
    def class_counts(self) -> npt.NDArray[np.int64]:
        """(classes,): the number of images of each class."""
        if self.multi_label:
            return np.asarray(self.class_matrix.sum(0))
        return np.bincount(self.labels[self.labels >= 0], minlength=len(self.classes))

    @property
    def has_masks(self) -> npt.NDArray[np.bool_]:
        """Which images have a mask; all may have one if `pixels` is set."""
        return self.table.masks.present[self.rows] | (self.pixels is not None)

    @property
    def domains(self) -> Categories:
        return self.table.domain.select(self.rows)

    @property
    def splits(self) -> dict[str | None, int]:
        """Images in each split, in the order train, val, test, others; None for no split."""
        column = self.table.split.select(self.rows)
        names = [*column.names, None]  # code -1 is None
        counts = {names[code]: n for code, n in Counter(column.codes.tolist()).items()}
        rank = {"train": 0, "val": 1, "test": 2}
        ordered = sorted(counts, key=lambda name: (rank.get(name or "", 3), name or ""))
        return {name: counts[name] for name in ordered}

    def attribute(self, key: str) -> Categories:
        available = self.table.attributes
        check(key in available, f"no attribute '{key}' in {self.name}: {', '.join(available)}")
        return available[key].select(self.rows)

    def path(self, i: int) -> Path:
        return self.root / (self.table.image[int(self.rows[i])] or "")

    def image(self, i: int, min_side: int | None = None) -> Image.Image:
        """Return an image, upright and in RGB; `min_side` as in `read_image`."""
        row = int(self.rows[i])
        if self.pixels:
            return self.pixels.image(row)
        # Not `self.path`: a Path costs 30 µs more.
        path = os.path.join(self.root, self.table.image[row] or "")
        return read_image(path, min_side=min_side)

    def mask(self, i: int) -> npt.NDArray[np.uint8] | None:
        """Return a mask (H, W), None if the image has none.

        0 is background, 1 object (or class ids, see `mask_codes`), 255 pixels to ignore.
        """
        if self.pixels:
            return self.pixels.mask(int(self.rows[i]))
        record = self[i]
        if not record.masks and not record.ignore:
            return None
        ignore = self.root / record.ignore if record.ignore else None
        return read_mask([self.root / path for path in record.masks], ignore, self.mask_codes)

    def split(self, name: str) -> Dataset:
        """Return the images of one split."""
        column = self.table.split
        available = ", ".join(column.names) or "it has none"
        check(name in column.names, f"{self.name} has no split '{name}': {available}")
        return self.select(np.flatnonzero(column.codes[self.rows] == column.names.index(name)))

    def select(self, positions: Iterable[int] | npt.NDArray[Any]) -> Dataset:
        """Return these images in this order, with the queries about them."""
        index = np.asarray(positions if isinstance(positions, np.ndarray) else list(positions))
        index = np.flatnonzero(index) if index.dtype == bool else index.astype(np.int64)
        subset = Dataset.__new__(type(self))
        subset.__dict__.update(self.__dict__)
        subset.rows = self.rows[index]
        if self.queries:
            new = {int(old): i for i, old in enumerate(index)}
            subset.queries = []
            for query in self.queries:
                if query.image in new:
                    truth = {
                        k: tuple(new[i] for i in v if i in new) for k, v in query.truth.items()
                    }
                    subset.queries.append(query._replace(image=new[query.image], truth=truth))
        return subset

    def all_rows(self) -> Dataset:
        """Return the data set before any selection: its positions are rows of the table."""
        full = self.select(())
        full.rows = np.arange(len(self.table.label.codes))
        return full


def pack(
    records: Iterable[Record | Problem],
    root: Path,
    name: str,
    classes: list[str] | None = None,
    mask_codes: MaskCodes = "object",
    class_order: Callable[[str], Any] = natural,
) -> Dataset:
    """Pack records into a data set.

    `classes` fixes the classes and their order, and may contain some that no image has; otherwise
    they are sorted by `class_order`.
    """
    builder, problems = RecordTableBuilder(), []
    for record in records:
        if isinstance(record, Record):
            builder.add(record)
        else:
            problems.append(record.message)
    if len(problems) > MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [f"and {len(problems) - MAX_PROBLEMS} more"]
    if classes is None:
        classes = sorted(builder.labels, key=class_order)
    classes = [readable_name(name) for name in classes]
    unknown = ", ".join(sorted(builder.labels.difference(classes))[:5])
    check(not unknown, f"{name}: classes that are not among its {len(classes)}: {unknown}")
    dataset = Dataset(builder.build(classes), root, name, classes)
    dataset.mask_codes, dataset.problems = mask_codes, problems
    return dataset
