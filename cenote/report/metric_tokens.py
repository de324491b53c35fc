"""The token study's picture (002 Figure 3a): convex hulls of classes, the tokens they are made of, background apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .tournament_plot import FADED, INK, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Hulls(NamedTuple):
    """What one pooling made of the tokens, all in the plane."""

    title: str
    samples: np.ndarray  # (N, 2) pooled vectors
    labels: np.ndarray  # (N,)
    tokens: np.ndarray  # (T, 2)
    owners: np.ndarray  # (T,) the class of each token, -1 background


def draw_hulls(panels: Sequence[Hulls]) -> Figure:
    """A panel for each pooling."""
    from matplotlib.figure import Figure

    if not panels or any(
        panel.samples.shape[1:] != (2,) or panel.tokens.shape[1:] != (2,) for panel in panels
    ):
        raise ValueError("hulls are drawn of points in the plane: samples (N, 2) and tokens (T, 2)")
    figure = Figure(figsize=(6.4 * len(panels), 7.4), facecolor=PAPER, layout="constrained")
    for axes, panel in zip(
        figure.subplots(1, len(panels), squeeze=False, sharex=True, sharey=True)[0],
        panels,
        strict=True,
    ):
        _draw(axes, panel)
    figure.supxlabel(
        "areas: hulls of classes · rings: their tokens · ×: background tokens",
        color=FADED,
        fontsize=10,
    )
    return figure


def _draw(axes: Axes, panel: Hulls) -> None:
    import matplotlib

    colours = matplotlib.colormaps["tab20"]
    axes.set_facecolor(PAPER)
    for label in np.unique(panel.labels):
        own, colour = panel.samples[panel.labels == label], colours(int(label) % 20)
        corners = own[hull(own)]
        axes.fill(*corners.T, color=colour, alpha=0.35, linewidth=0, zorder=2)
        axes.fill(*corners.T, fill=False, edgecolor=colour, linewidth=1.4, zorder=3)
        axes.plot(*own.T, ".", color=colour, markersize=2.5, zorder=3)
        mine = panel.tokens[panel.owners == label]
        axes.plot(
            *mine.T, "o", color=colour, markerfacecolor="none", markersize=6, alpha=0.8, zorder=4
        )
    axes.plot(
        *panel.tokens[panel.owners < 0].T, "x", color=INK, markersize=9, markeredgewidth=2, zorder=5
    )
    axes.set_title(panel.title, loc="left", color=INK, fontsize=13)
    axes.set_aspect("equal")
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def hull(points: np.ndarray) -> np.ndarray:
    """Positions of the corners, in order; of points on one line, its two ends."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        return np.asarray(ConvexHull(points).vertices)
    except (QhullError, ValueError):  # fewer than three points, or all on a line
        along = np.linalg.svd(points - points.mean(0), full_matrices=False)[2][0]
        place = points @ along
        return np.array([place.argmin(), place.argmax()])
