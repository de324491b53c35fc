"""Tables of composed retrieval, in the papers' form: a row for each method, a column for each domain or attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def table_text(report: Mapping[str, Any]) -> str:
    """For a terminal."""
    return "\n\n".join([*map(_aligned, _tables(report)), summary(report)])


def table_markdown(report: Mapping[str, Any]) -> str:
    """For a page; the best of each column is bold."""
    return "\n\n".join([*map(_with_best, _tables(report)), summary(report)])


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _with_best(table: Sequence[Sequence[str]]) -> str:
    head, *rows = table
    best = [max((_number(row[i]) for row in rows), default=0.0) for i in range(1, len(head))]
    return markdown(
        head, [[row[0], *(_bold(c, b) for c, b in zip(row[1:], best, strict=True))] for row in rows]
    )


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def summary(report: Mapping[str, Any]) -> str:
    """One sentence on what the numbers are."""
    nothing = report["nothing_to_find"]
    without = f", {nothing} of them with nothing to find (0)" if nothing else ""
    return (
        f"{report['protocol']}, mAP in percent ({report['average_precision']}), {report['model']} on {report['data']}: "
        f"{report['questions']} queries{without}, {report['database']} images"
    )


def _tables(report: Mapping[str, Any]) -> list[list[list[str]]]:
    """Of average precision, then of what is found among the first so many: recall@K, map@K, recall_subset@K."""
    first = next(iter(report["methods"].values()))
    return [_rows(report, "")] + [_rows(report, name) for name in first if "@" in name]


def _rows(report: Mapping[str, Any], what: str) -> list[list[str]]:
    columns = report["columns"]
    rows = [["method" + (what and f", {what.replace('map', 'mAP')}"), *columns, "average"]]
    for name, method in report["methods"].items():
        found = method[what] if what else method
        cells = [found["columns"].get(column) for column in columns]
        rows.append(
            [
                name,
                *("-" if cell is None else f"{cell:.2f}" for cell in cells),
                f"{found['average']:.2f}",
            ]
        )
    return rows


def _number(cell: str) -> float:
    return float("-inf") if cell == "-" else float(cell)


def _bold(cell: str, best: float) -> str:
    return f"**{cell}**" if _number(cell) == best else cell
