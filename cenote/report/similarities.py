"""Histograms of similarities (D Fig. 4.3): does a method tell the images apart that are right in both ways?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .palette import FADED, INK, PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 40
ACROSS = 3  # panels in a row
# In the order in which they are drawn, the right ones last and on top.
COLOURS = {"neither": "#b8b5ae", "class": "#ee8866", "value": "#228833", "both": "#4477aa"}


def draw_similarities(
    panels: Mapping[str, Mapping[str, Any]], title: str, names: Mapping[str, str]
) -> Figure:
    """A panel for each method: {"scores": {group: values}, "precision"}; `names` says what the groups are.

    Each group has the same area, so that few right images are seen beside many wrong ones.
    """
    from matplotlib.figure import Figure

    if not panels:
        raise ValueError("histograms of similarities: nothing to draw")
    down, across = -(-len(panels) // ACROSS), min(len(panels), ACROSS)
    figure = Figure(figsize=(4.2 * across, 2.5 * down + 1.0), facecolor=PAPER, layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).flatten()
    for axes, (method, found) in zip(grid, panels.items(), strict=False):
        axes.set_facecolor(PAPER)
        edges = _edges(found["scores"])
        for group, colour in COLOURS.items():
            values = found["scores"].get(group, ())
            if len(values):
                weights = np.full(len(values), 1 / len(values))
                axes.hist(values, edges, weights=weights, color=colour, alpha=0.35)
                axes.hist(
                    values, edges, weights=weights, color=colour, histtype="step", linewidth=1.4
                )
        axes.set_title(
            f"{method} · AP {100 * found['precision']:.1f}", loc="left", color=INK, fontsize=11
        )
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.set_yticks([])
        axes.tick_params(length=0, colors=FADED, labelsize=8)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    _legend(figure, panels, names)
    figure.suptitle(title, color=INK, fontsize=12, x=0.01, ha="left")
    return figure


def _edges(scores: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    values = np.concatenate([np.asarray(part, float) for part in scores.values()])
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    return np.linspace(low, high if high > low else low + 1e-6, BINS + 1)


def _legend(
    figure: Figure, panels: Mapping[str, Mapping[str, Any]], names: Mapping[str, str]
) -> None:
    from matplotlib.patches import Patch

    first = next(iter(panels.values()))["scores"]
    handles = [
        Patch(color=colour, alpha=0.7, label=f"{names[group]} ({len(first.get(group, ()))})")
        for group, colour in COLOURS.items()
    ]
    figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=4,
        frameon=False,
        labelcolor=INK,
        fontsize=9,
    )
