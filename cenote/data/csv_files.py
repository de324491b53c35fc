"""CSV files: cells that no spreadsheet runs as formulas, and names that need not be UTF-8."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from .files import write_atomically

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of a formula in a spreadsheet


class CsvRows:
    """Writes rows to an open file."""

    def __init__(self, file: TextIO, line_end: str = "\r\n") -> None:
        self.writer = csv.writer(file, lineterminator=line_end)

    def write(self, values: Iterable[object]) -> None:
        self.writer.writerow([quote_formula(value) for value in values])

    def write_all(self, rows: Iterable[Iterable[object]]) -> None:
        for row in rows:
            self.write(row)


@contextmanager
def write_csv(path: Path) -> Iterator[CsvRows]:
    """Write a CSV file atomically."""
    with (
        write_atomically(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        yield CsvRows(file)


def quote_formula(value: object) -> object:
    """Put an apostrophe before text that a spreadsheet would run; numbers stay numbers."""
    if isinstance(value, str) and _is_formula(value.lstrip("'")):
        return f"'{value}"
    return value


def unquote_formula(text: str) -> str:
    """Return the text that `quote_formula` was given."""
    if text.startswith("'") and _is_formula(text.lstrip("'")):
        return text[1:]
    return text


def _is_formula(text: str) -> bool:
    if not text.startswith(FORMULA):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False
