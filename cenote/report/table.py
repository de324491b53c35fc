"""Tables as text and Markdown; one that is declared as a list of columns is also shown in HTML."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

CellValue = str | int | float | None  # None is an empty cell
Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """`value` of a row is sorted by; `format` writes a value that is not None."""

    name: str
    value: Callable[[Row], CellValue]
    format: Callable[[Any], str] = str
    help: str = ""
    numeric: bool = True
    missing: str = ""  # written for None

    def text(self, row: Row) -> str:
        value = self.value(row)
        return self.missing if value is None else self.format(value)


def table_json(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> dict[str, Any]:
    """Return a table for a web page: columns, and rows of values to sort by with their texts."""
    return {
        "columns": [{"name": c.name, "numeric": c.numeric, "help": c.help} for c in columns],
        "rows": [[{"value": c.value(row), "text": c.text(row)} for c in columns] for row in rows],
    }


def align_columns(rows: Sequence[Sequence[str]], words: Collection[int] = (0,)) -> str:
    """Return rows as lines of text; the columns of `words` are left-aligned, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i in words else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int] = (0,)
) -> str:
    """Return a Markdown table; the columns of `words` are left-aligned, the others right."""
    rule = ["---" if i in words else "---:" for i in range(len(header))]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *escaped])


def short_number(number: int) -> str:
    """1234567 -> 1.2M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{letter}"
    return str(number)
