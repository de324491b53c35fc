"""Tables of composed retrieval: one row per method, one column per domain or attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .table import align_columns, markdown_table


def table_text(report: Mapping[str, Any]) -> str:
    """Return the tables for a terminal."""
    return "\n\n".join([*map(align_columns, _tables(report)), summary(report)])


def table_markdown(report: Mapping[str, Any]) -> str:
    """Return the tables as Markdown; the best number of each column is bold."""
    tables = [markdown_table(table[0], _emphasize_best(table[1:])) for table in _tables(report)]
    return "\n\n".join([*tables, summary(report)])


def summary(report: Mapping[str, Any]) -> str:
    """Return one sentence that says what the numbers are."""
    without_match = report["nothing_to_find"]
    note = f", {without_match} of them without a match (0)" if without_match else ""
    return (
        f"{report['protocol']}, mAP in percent ({report['average_precision']}), {report['model']} "
        f"on {report['data']}: {report['questions']} queries{note}, {report['database']} images"
    )


def _tables(report: Mapping[str, Any]) -> list[list[list[str]]]:
    """Return rows of cells for average precision, then for recall@K, map@K and recall_subset@K."""
    method = next(iter(report["methods"].values()))
    return [_rows(report, "")] + [_rows(report, name) for name in method if "@" in name]


def _rows(report: Mapping[str, Any], metric: str) -> list[list[str]]:
    title = f"method, {metric.replace('map', 'mAP')}" if metric else "method"
    rows = [[title, *report["columns"], "average"]]
    for name, method in report["methods"].items():
        scores = method[metric] if metric else method
        cells = [_format(scores["columns"].get(column)) for column in report["columns"]]
        rows.append([name, *cells, _format(scores["average"])])
    return rows


def _format(score: float | None) -> str:
    return "-" if score is None else f"{score:.2f}"


def _emphasize_best(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Make the best cells of all columns but the first bold."""
    names, *columns = zip(*rows, strict=True)
    emphasized = []
    for cells in columns:
        best = max((float(cell) for cell in cells if cell != "-"), default=None)
        is_best = [cell != "-" and float(cell) == best for cell in cells]
        bold = [f"**{cell}**" if b else cell for cell, b in zip(cells, is_best, strict=True)]
        emphasized.append(bold)
    return [list(row) for row in zip(names, *emphasized, strict=True)]
