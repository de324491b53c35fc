"""Which prototypes each class uses (002 Figure 4), with and without the zero-shot loss side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .tournament_plot import COLOURS, FADED, INK, PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 12  # classes that one picture has room for


def class_histograms(
    histograms: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Mean histogram of each class that is there: labels (C,) and shares (C, m)."""
    z, y = np.asarray(histograms, float), np.asarray(labels)
    if z.ndim != 2 or y.shape != z.shape[:1] or not len(y):
        raise ValueError(f"histograms are (N, m) and labels (N,), got {z.shape} and {y.shape}")
    present = np.unique(y)
    return present, np.stack([z[y == label].mean(0) for label in present])


def draw_histograms(
    panels: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]],
    classes: Sequence[str],
    most: int = MOST,
) -> Figure:
    """A column for each of `panels` (histograms, labels), a row for each class; all bars have one scale."""
    from matplotlib.figure import Figure

    found = {title: class_histograms(*panel) for title, panel in panels.items()}
    if not found:
        raise ValueError("prototype histograms: nothing to draw")
    shown = sorted(set.intersection(*(set(present.tolist()) for present, _ in found.values())))
    if not shown:
        raise ValueError("prototype histograms: the panels have no class in common")
    left_out, shown = len(shown) - most, shown[:most]
    figure = Figure(
        figsize=(5 * len(found) + 1, 0.62 * len(shown) + 1.1), facecolor=PAPER, layout="constrained"
    )
    grid = figure.subplots(len(shown), len(found), squeeze=False, sharex="col", sharey=True)
    for column, (title, (present, shares)) in enumerate(found.items()):
        m = shares.shape[1]
        for row, label in enumerate(shown):
            axes = grid[row, column]
            axes.set_facecolor(PAPER)
            axes.bar(
                range(m),
                shares[list(present).index(label)],
                width=0.85,
                color=COLOURS[column % len(COLOURS)],
            )
            axes.axhline(1 / m, color=FADED, linewidth=0.7, linestyle=":")
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.set_yticks([])
            axes.tick_params(length=0, colors=FADED, labelsize=8)
            if column == 0:
                axes.set_ylabel(
                    classes[label], rotation=0, ha="right", va="center", color=INK, fontsize=9
                )
        grid[0, column].set_title(title, loc="left", color=INK, fontsize=12)
        grid[-1, column].set_xlabel(
            f"{m} prototypes · dots: an equal share", color=FADED, fontsize=9
        )
    if left_out > 0:
        figure.supxlabel(f"and {left_out} more classes", color=FADED, fontsize=9)
    return figure
