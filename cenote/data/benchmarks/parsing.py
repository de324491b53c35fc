"""Tables and MATLAB files of the published sets: damage gets one sentence with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..record import Box

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
