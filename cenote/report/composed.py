"""Composed retrieval: tables with one row per method, and histograms of similarities.

The histograms [Dissertation Fig. 4.3] are by how far an image matches the query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .plots import FADED, INK, PAPER
from .table import align_columns, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 40
PANELS_PER_ROW = 3
# In drawing order: the right ones are on top.
COLOURS = {"neither": "#b8b5ae", "class": "#ee8866", "value": "#228833", "both": "#4477aa"}


class MatchScores(NamedTuple):
    """Scores of the images of a database by what of the query they match, a key of COLOURS."""

    scores: Mapping[str, Sequence[float]]
    precision: float  # average precision, 0 to 1


def table_text(report: Mapping[str, Any]) -> str:
    """Return the tables for a terminal."""
    return "\n\n".join([*map(align_columns, _tables(report)), summary(report)])


def table_markdown(report: Mapping[str, Any]) -> str:
    """Return the tables as Markdown; the best number of each column is bold."""
    tables = [markdown_table(table[0], _emphasize_best(table[1:])) for table in _tables(report)]
    return "\n\n".join([*tables, summary(report)])


def summary(report: Mapping[str, Any]) -> str:
    """Return one sentence that says what the numbers are."""
    queries = f"{report['questions']} queries"
    if report["nothing_to_find"]:
        queries += f", {report['nothing_to_find']} of them without a match (0)"
    return (
        f"{report['protocol']}, mAP in percent ({report['average_precision']}), {report['model']} "
        f"on {report['data']}: {queries}, {report['database']} images"
    )


def _tables(report: Mapping[str, Any]) -> list[list[list[str]]]:
    """Return rows of cells for average precision, then for the other metrics."""
    methods, columns = report["methods"], report["columns"]
    tables = [_rows("method", columns, methods)]
    for metric, values in next(iter(methods.values())).items():
        if isinstance(values, Mapping) and "columns" in values:
            scores = {name: method[metric] for name, method in methods.items()}
            tables.append(_rows(f"method, {metric.replace('map', 'mAP')}", columns, scores))
    return tables


def _rows(title: str, columns: Sequence[str], methods: Mapping[str, Any]) -> list[list[str]]:
    rows = [[title, *columns, "average"]]
    for name, scores in methods.items():
        cells = [_format(scores["columns"].get(column)) for column in columns]
        rows.append([name, *cells, _format(scores["average"])])
    return rows


def _format(score: float | None) -> str:
    return "-" if score is None else f"{score:.2f}"


def _emphasize_best(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Make the best cells of all columns but the first bold."""
    names, *columns = zip(*rows, strict=True)
    emphasized = []
    for cells in columns:
        best = max((cell for cell in cells if cell != "-"), key=float, default="")
        emphasized.append([f"**{cell}**" if cell == best else cell for cell in cells])
    return [list(row) for row in zip(names, *emphasized, strict=True)]


def draw_similarities(
    panels: Mapping[str, MatchScores], title: str, names: Mapping[str, str]
) -> Figure:
    """Draw a panel for each method; `names` are the names of the groups of images.

    Each group has the same area, so that few right images are visible beside many wrong ones.
    """
    from matplotlib.figure import Figure

    down, across = -(-len(panels) // PANELS_PER_ROW), min(len(panels), PANELS_PER_ROW)
    figure = Figure(figsize=(4.2 * across, 2.5 * down + 1.0), facecolor=PAPER, layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).flatten()
    for axes, (method, panel) in zip(grid, panels.items(), strict=False):
        axes.set_facecolor(PAPER)
        edges = _edges(panel.scores)
        for group, colour in COLOURS.items():
            values = panel.scores[group]
            if len(values):
                weights = np.full(len(values), 1 / len(values))
                axes.hist(values, edges, weights=weights, color=colour, alpha=0.35)
                axes.hist(
                    values, edges, weights=weights, color=colour, histtype="step", linewidth=1.4
                )
        axes.set_title(
            f"{method} · AP {100 * panel.precision:.1f}", loc="left", color=INK, fontsize=11
        )
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.set_yticks([])
        axes.tick_params(length=0, colors=FADED, labelsize=8)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    _legend(figure, panels, names)
    figure.suptitle(title, color=INK, fontsize=12, x=0.01, ha="left")
    return figure


def _edges(scores: Mapping[str, Sequence[float]]) -> npt.NDArray[np.float64]:
    values = np.concatenate([np.asarray(group, float) for group in scores.values()])
    low, high = float(values.min()), float(values.max())
    return np.linspace(low, max(high, low + 1e-6), BINS + 1)


def _legend(figure: Figure, panels: Mapping[str, MatchScores], names: Mapping[str, str]) -> None:
    from matplotlib.patches import Patch

    first = next(iter(panels.values())).scores
    handles = [
        Patch(color=colour, alpha=0.7, label=f"{names[group]} ({len(first[group])})")
        for group, colour in COLOURS.items()
    ]
    style: Any = {"frameon": False, "labelcolor": INK, "fontsize": 9}
    figure.legend(handles=handles, loc="outside lower left", ncols=4, **style)
