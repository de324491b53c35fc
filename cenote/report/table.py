"""Tables that are declared once, as a list of columns, and rendered as text, Markdown and HTML.

If the columns depend on the data, a table is a list of rows of strings: see `align_columns` and
`markdown_table`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def used_columns(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> list[Column[Row]]:
    """Return the columns that have a value in some row."""
    return [column for column in columns if any(column.value(row) is not None for row in rows)]


def render_text(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> str:
    """Align words to the left and numbers to the right."""
    cells = _cells(columns, rows)
    widths = [max(map(len, texts)) for texts in zip(*cells, strict=True)]
    lines = []
    for texts in cells:
        aligned = [
            text.rjust(width) if column.numeric else text.ljust(width)
            for column, text, width in zip(columns, texts, widths, strict=True)
        ]
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)


def render_markdown(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> str:
    lines = [
        "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"
        for texts in _cells(columns, rows)
    ]
    lines.insert(1, "|" + "---|" * len(columns))
    return "\n".join(lines)


def table_json(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> dict[str, Any]:
    """Return a table for a web page: columns, and rows of values to sort by with their texts."""
    return {
        "columns": [{"name": c.name, "numeric": c.numeric, "help": c.help} for c in columns],
        "rows": [[{"value": c.value(row), "text": c.text(row)} for c in columns] for row in rows],
    }


def _cells(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> list[list[str]]:
    """Return the texts of all cells, below the names of the columns."""
    names = [column.name for column in columns]
    return [names, *([column.text(row) for column in columns] for row in rows)]


def align_columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines of text; the first column is left-aligned, the others right-aligned."""
    name_width, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        lines.append("  ".join([name.ljust(name_width), *padded]))
    return "\n".join(lines)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first column is left-aligned, the others right-aligned."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def short_number(number: int) -> str:
    """1234567 -> 1.2M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{letter}"
    return str(number)
