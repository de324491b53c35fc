"""Read text tables, MATLAB files and folders of published data sets; errors name file and line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..checks import check, errors_in
from ..images import is_image_name
from ..record import Box

T = TypeVar("T")


def parse_lines(
    path: Path, parse: Callable[..., T], columns: int, separator: str | None = None, skip: int = 0
) -> Iterator[T]:
    """Yield `parse(*values)` for each line; the last value takes the remainder of the line.

    A line with fewer values, or for which `parse` raises a ValueError or KeyError, is a ValueError
    that names file and line.
    """
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        for number, line in enumerate(file, 1):
            text = line.strip()
            if number <= skip or not text:
                continue
            values = text.split(separator, columns - 1)
            try:
                check(len(values) == columns, f"expected {columns} values")
                yield parse(*values)
            except (ValueError, KeyError) as error:
                reason = f"unknown {error}" if isinstance(error, KeyError) else error
                raise ValueError(f"{path}, line {number}: {reason}, in {text[:80]!r}") from error


def split_lines(
    path: Path, columns: int, separator: str | None = None, skip: int = 0
) -> Iterator[tuple[str, ...]]:
    """Yield the values of each line."""
    return parse_lines(path, lambda *values: values, columns, separator, skip)


def make_box(x1: Any, y1: Any, x2: Any, y2: Any) -> Box:
    """Return a box of two corners, the second one exclusive."""
    box = Box(float(x1), float(y1), float(x2), float(y2))
    valid = box.x1 < box.x2 and box.y1 < box.y2  # false for NaN
    check(valid, f"a box needs x1 < x2 and y1 < y2, got {x1}, {y1}, {x2}, {y2}")
    return box


def read_mat(path: Path, *names: str) -> list[Any]:
    """Return variables of a MATLAB file, as arrays of at least one dimension."""
    from scipy.io import loadmat

    with errors_in(path):
        variables = loadmat(path, squeeze_me=True, variable_names=list(names))
        return [np.atleast_1d(variables[name]) for name in names]


def struct_rows(path: Path, struct: Any, *names: str) -> Iterator[tuple[Any, ...]]:
    """Return fields of each element of a MATLAB struct array."""
    with errors_in(path):
        return zip(*(struct[name] for name in names), strict=True)


def folders(path: Path) -> list[str]:
    """Return the sorted names of the folders in a folder, none if it does not exist."""
    if not path.is_dir():
        return []
    with os.scandir(path) as entries:
        return sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir())


def images(path: Path) -> list[str]:
    """Return the sorted names of the images in a folder."""
    names = sorted(os.listdir(path))
    return [name for name in names if not name.startswith(".") and is_image_name(name)]
