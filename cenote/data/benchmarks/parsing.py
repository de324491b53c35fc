"""Tables and MATLAB files of the published sets: damage gets one sentence with its place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..dataset import Dataset, pack
from ..images import SUFFIXES
from ..layout import LayoutError, check_layout, list_contents
from ..record import Box, Record

T = TypeVar("T")


def parse_lines(
    path: Path, parse: Callable[..., T], columns: int, separator: str | None = None, skip: int = 0
) -> Iterator[T]:
    """`parse` of the values of each line; the last value takes the rest of its line.

    A line with fewer values, or one that `parse` raises a ValueError or KeyError of, is an error with file and number.
    """
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        for number, line in enumerate(file, 1):
            text = line.strip()
            if number <= skip or not text:
                continue
            values = text.split(separator, columns - 1)
            if len(values) != columns:
                raise ValueError(
                    f"{path}, line {number}: expected {columns} values, found {text[:80]!r}"
                )
            try:
                yield parse(*values)
            except (ValueError, KeyError) as error:
                reason = f"{error} is not known" if isinstance(error, KeyError) else error
                raise ValueError(f"{path}, line {number}: {reason}, in {text[:80]!r}") from error


def split_lines(
    path: Path, columns: int, separator: str | None = None, skip: int = 0
) -> Iterator[tuple[str, ...]]:
    """The values of each line as they stand."""
    return parse_lines(path, lambda *values: values, columns, separator, skip)


def corners(x1: Any, y1: Any, x2: Any, y2: Any) -> Box:
    """A box of two corners, the second one outside."""
    box = Box(float(x1), float(y1), float(x2), float(y2))
    if not (box.x1 < box.x2 and box.y1 < box.y2):  # also false for NaN
        raise ValueError(f"no box has the corners {x1}, {y1}, {x2}, {y2}")
    return box


def read_mat(path: Path, *names: str) -> list[Any]:
    """These variables of a MATLAB file, as arrays of at least one dimension."""
    from scipy.io import loadmat

    try:
        variables = loadmat(path, squeeze_me=True, variable_names=list(names))
    except Exception as error:  # a damaged file fails with any error at all
        raise ValueError(
            f"{path} is no MATLAB file that can be read: {' '.join(str(error).split())[:120]}"
        ) from error
    missing = [name for name in names if name not in variables]
    if missing:
        raise ValueError(f"{path}: expected {', '.join(names)} in it; {', '.join(missing)} missing")
    return [np.atleast_1d(variables[name]) for name in names]


def fields(path: Path, struct: Any, *names: str) -> Iterator[tuple[Any, ...]]:
    """These fields of each element of a struct array."""
    missing = [name for name in names if name not in (struct.dtype.names or ())]
    if missing:
        known = ", ".join(struct.dtype.names or ()) or "none"
        raise ValueError(
            f"{path}: expected the fields {', '.join(names)}; {', '.join(missing)} missing, found {known}"
        )
    return zip(*(struct[name] for name in names), strict=True)


def folders(path: Path) -> list[str]:
    """The names of the folders in one, none if it is not there."""
    if not path.is_dir():
        return []
    with os.scandir(path) as entries:
        return sorted(
            entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()
        )


def images(path: Path) -> list[str]:
    """The names of the images in a folder."""
    with os.scandir(path) as entries:
        names = [entry.name for entry in entries if not entry.name.startswith(".")]
    return sorted(name for name in names if os.path.splitext(name)[1].lower() in SUFFIXES)


def layout_error(root: Path, what: str, wanted: str) -> LayoutError:
    """The refusal of a folder whose reader looks for names that it cannot spell out."""
    if not root.is_dir():
        return LayoutError(
            f"{root} is {'a file' if root.exists() else 'not there'}: {what} is a folder with {wanted}"
        )
    return LayoutError(f"{root} is not {what}: expected {wanted}, found {list_contents(root)}")


Lists = Mapping[str | None, str]  # the file of each split
SOURCE = "github.com/NikosEfth/freedom (data/ and set_dataset.py)"
QUERY_AND_DATABASE: Lists = {"query": "query_files.csv", "gallery": "database_files.csv"}
WHOLE: Lists = {None: "full_files.csv"}
# The words of the text queries, where they are not the names of the domains.
DOMAIN_WORDS = {"real": "photo", "dim": "dimlight", "New": "Today", "Old": "Archive"}


def read_domain_lists(root: Path, name: str, what: str, lists: Lists) -> Dataset:
    check_layout(root, what, *lists.values())
    return pack(_records(root, lists), root, name)


def _records(root: Path, lists: Lists) -> Iterator[Record]:
    for split, file in lists.items():

        def record(path: str, domain: str, label: str, split: str | None = split) -> Record:
            below = path.partition("/")[2]  # without the name that FreeDom gives the set's folder
            if not below:
                raise ValueError(f"{path} is no path below the set's folder")
            return Record(below, label, split, domain=domain)

        yield from parse_lines(root / file, record, 3)
