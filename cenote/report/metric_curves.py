"""Two curves of metric learning: how positive a mixed embedding is, and what GSP's share mu does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .tournament_plot import COLOURS, FADED, INK, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_SPAN = 2.0  # points of an axis


def draw_positivity(
    factors: npt.ArrayLike, empirical: npt.ArrayLike, theoretical: npt.ArrayLike, title: str = ""
) -> Figure:
    """P(Pos(a, v)) against lambda (D Figure 2.2): how often the loss pulls a mixed embedding to its anchor.

    Empirical: the share of derivatives that are not positive. Theoretical: (D 2.23).
    """
    x, measured, told = (np.asarray(values, float) for values in (factors, empirical, theoretical))
    if not (x.ndim == 1 and x.shape == measured.shape == told.shape):
        raise ValueError(
            f"positivity: three rows of one length, got {x.shape}, {measured.shape}, {told.shape}"
        )
    figure, axes = _canvas(title or "When a mixed embedding counts as positive")
    axes.axhline(0.5, color=FADED, linewidth=0.8, linestyle=":")
    axes.axvline(0.5, color=FADED, linewidth=0.8, linestyle=":")
    axes.plot(
        x,
        measured,
        "o-",
        color=COLOURS[0],
        markersize=5,
        linewidth=2,
        label="empirical: sign of the derivative",
    )
    axes.plot(x, told, "--", color=COLOURS[1], linewidth=2, label="theoretical (2.23)")
    axes.set_xlabel("interpolation factor λ", color=INK)
    axes.set_ylabel("P(positive)", color=INK)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.legend(loc="best", facecolor=PAPER, edgecolor="none")
    return figure


def draw_mu(
    scores: Mapping[float, npt.ArrayLike],
    gap: npt.ArrayLike | None = None,
    metric: str = "MAP@R",
    title: str = "",
) -> Figure:
    """A score against GSP's mu (002 Figure 6): a value or one for each seed, in percent; bands are one deviation."""
    if not scores:
        raise ValueError("effect of mu: no scores to draw")
    mus = sorted(scores)
    means, deviations = np.array([_spread(scores[mu]) for mu in mus]).T
    figure, axes = _canvas(title or "Effect of μ: the share of features that GSP takes")
    axes.fill_between(
        mus, means - deviations, means + deviations, color=COLOURS[0], alpha=0.18, linewidth=0
    )
    axes.plot(mus, means, "o-", color=COLOURS[0], linewidth=2, markersize=6, label="GSP")
    if gap is not None:
        mean, deviation = _spread(gap)
        axes.axhspan(mean - deviation, mean + deviation, color=COLOURS[1], alpha=0.15, linewidth=0)
        axes.axhline(mean, color=COLOURS[1], linewidth=1.6, linestyle="--", label="GAP (μ = 1)")
    axes.set_xlabel("μ", color=INK)
    axes.set_ylabel(f"{metric} on unseen classes (%)", color=INK)
    axes.legend(loc="best", facecolor=PAPER, edgecolor="none")
    low, high = axes.get_ylim()
    if high - low < LEAST_SPAN:  # a cliff of a hundredth of a point is none
        axes.set_ylim((low + high - LEAST_SPAN) / 2, (low + high + LEAST_SPAN) / 2)
    return figure


def _spread(values: npt.ArrayLike) -> tuple[float, float]:
    """Mean and deviation over seeds; one seed has none."""
    row = np.atleast_1d(np.asarray(values, float))
    return float(row.mean()), float(row.std(ddof=1)) if len(row) > 1 else 0.0


def _canvas(title: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(8, 5), facecolor=PAPER, layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor(PAPER)
    axes.set_title(title, loc="left", color=INK, fontsize=13)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
