"""Columns that hold a million values in a handful of arrays.

A list of a million Python strings costs 100 MB, and worker processes copy it page by page because reading a Python
object writes its reference count. These columns are NumPy buffers: forked workers share them untouched.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Strings:
    """Strings end to end in one buffer. None is kept apart from the empty string."""

    def __init__(
        self, text: npt.NDArray[np.uint8], ends: Ints, known: npt.NDArray[np.bool_] | None
    ) -> None:
        self.text, self.ends, self.known = text, ends, known

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> str | None:
        if self.known is not None and not self.known[row]:
            return None
        start = self.ends[row - 1] if row else 0
        return (
            self.text[start : self.ends[row]].tobytes().decode("utf-8", "surrogateescape")
        )  # any file name


class StringsBuilder:
    """Strings of some of the rows, in their order; the others are None."""

    def __init__(self) -> None:
        self.text, self.rows, self.lengths = bytearray(), array("q"), array("q")

    def put(self, row: int, value: str) -> None:
        encoded = value.encode("utf-8", "surrogateescape")
        self.text += encoded
        self.rows.append(row)
        self.lengths.append(len(encoded))

    def build(self, rows: int) -> Strings | None:
        """None if there is nothing in it."""
        if not self.rows:
            return None
        places, lengths = np.array(self.rows), np.zeros(rows, np.int64)
        lengths[places] = self.lengths
        known = None
        if len(places) < rows:
            known = np.zeros(rows, bool)
            known[places] = True
        return Strings(np.frombuffer(bytes(self.text), np.uint8), lengths.cumsum(), known)


class Categories:
    """Few different strings, many times: `codes` into `names`, -1 for None."""

    def __init__(self, codes: npt.NDArray[np.int32], names: list[str]) -> None:
        self.codes, self.names = codes, names

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str | None:
        code = self.codes[row]
        return self.names[code] if code >= 0 else None


class CategoriesBuilder:
    """Names of some of the rows; the others are None."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.rows, self.codes = array("q"), array("i")

    def put(self, row: int, value: str) -> None:
        self.rows.append(row)
        self.codes.append(self.index.setdefault(value, len(self.index)))

    def build(self, rows: int, order: list[str] | None = None) -> Categories:
        """In the given order of names, by default sorted, numbers by their value."""
        names = list(self.index)
        order = sorted(names, key=natural) if order is None else order
        places = {name: place for place, name in enumerate(order)}
        lookup = np.array([places[name] for name in names], np.int32)
        codes = np.full(rows, -1, np.int32)
        if names:
            codes[np.array(self.rows)] = lookup[np.array(self.codes)]
        return Categories(codes, order)


def natural(name: str) -> tuple[int, int, str]:
    """Sort "2" before "10", and both before words."""
    return (0, int(name), name) if name.isascii() and name.isdigit() else (1, 0, name)
