"""S Figure 3 on your data: accuracy against parameters, or S Figure C1: against gamma."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .labels import PixelBox, distance_to_box, place_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart also by those who see fewer colours, and by their shapes.
COLOURS = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#b8860b",
    "#aa3377",
    "#5fb3d9",
    "#555555",
    "#e07b39",
    "#222222",
)
SHAPES = "osD^vPX<>"
PAPER, INK, FADED = "#faf9f6", "#1c1c1e", "#787672"


def draw_plot(report: Mapping[str, Any]) -> Figure:
    """Every contender with the deviation of its seeds; stars are the winners of their groups."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    rows = [row for row in report["standings"] if row["mean"] is not None]
    by_gamma = report["kind"] == "gamma"
    figure = Figure(figsize=(11, 7), facecolor=PAPER, layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor(PAPER)
    groups = [group for group in report["groups"] if any(row["group"] == group for row in rows)]
    points: list[tuple[Any, ...]] = []
    for place, group in enumerate(groups):
        own = [row for row in rows if row["group"] == group]
        colour = COLOURS[place % len(COLOURS)]
        first = True
        for row in own:
            x, star = _x(row, by_gamma), bool(row["group_winner"]) and not by_gamma
            shape = "*" if star else SHAPES[place % len(SHAPES)]
            if x is not None:
                spread = row["deviation"] or None
                axes.errorbar(
                    x, row["mean"], spread, color=colour, elinewidth=0.9, alpha=0.45, zorder=2
                )
                axes.plot(
                    x, row["mean"], shape, color=colour, markersize=17 if star else 8, markeredgecolor=PAPER,
                    markeredgewidth=0.8, zorder=4 if star else 3,
                )  # fmt: skip
                points.append((x, float(row["mean"]), row["name"], colour, star))
            else:
                axes.axhline(
                    row["mean"], color=colour, linewidth=1.2, linestyle="--", alpha=0.8, zorder=1
                )
                points.append((None, float(row["mean"]), row["name"], colour, False))
            if first:
                axes.plot(
                    [], [], SHAPES[place % len(SHAPES)], color=colour, label=group, markersize=8
                )
                first = False
    fixed = sorted((x, y) for x, y, *_ in points if x is not None)
    if by_gamma:
        axes.plot(*zip(*fixed, strict=True), color=COLOURS[0], linewidth=1, alpha=0.5, zorder=1)
        axes.set_xlabel("exponent γ", color=INK)
    else:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("trained parameters (pool and head)", color=INK)
    axes.margins(0.09, 0.08)
    axes.set_ylabel(f"accuracy on {report['images']} {report['judged']} images (%)", color=INK)
    best = max(row["mean"] for row in rows)
    axes.axhspan(best - report["noise"], best, color="#000000", alpha=0.05, zorder=0, linewidth=0)
    seeds = f"{report['seeds']} seed{'s' * (report['seeds'] != 1)}"
    axes.set_title(
        f"{report['data']} · {report['backbone']}, frozen · {seeds}",
        loc="left",
        color=INK,
        fontsize=13,
    )
    band = "grey band: cannot be told from the first" + (
        "" if by_gamma else " · stars: winners of their groups"
    )
    axes.set_title(band, loc="right", color=FADED, fontsize=9)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if len(groups) > 1 and not by_gamma:
        figure.legend(
            loc="outside lower center", ncols=min(len(groups), 5), fontsize=9, frameon=False
        )
    _write_labels(figure, axes, points)
    return figure


def _x(row: Mapping[str, Any], by_gamma: bool) -> float | None:
    """None: a level line, of what has no fixed gamma."""
    if not by_gamma:
        return float(row["trained"])
    options = row["options"]
    return (
        float(options["gamma"]) if "gamma" in options and not options.get("learn_gamma") else None
    )


def _write_labels(figure: Figure, axes: Axes, points: Sequence[tuple[Any, ...]]) -> None:
    """Names beside their points, winners first, where no other name or point stands; far ones with a line."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer: Any = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    figure.draw_without_rendering()  # the layout must stand before anything is measured
    frame = axes.get_window_extent(renderer)
    inside: PixelBox = (frame.x0, frame.y0, frame.x1, frame.y1)
    to_pixels, scale = axes.transData.transform, figure.dpi / 72
    placed: list[PixelBox] = []
    dots: list[tuple[float, float, float]] = []
    for x, y, _, _, star in points:
        if x is not None:
            px, py = to_pixels((x, y))
            dots.append((px, py, (9 if star else 5) * scale))
    for x, y, name, colour, star in sorted(points, key=lambda p: (not p[4], -p[1])):
        weight, size = ("bold", 10) if star else ("normal", 8.5)
        text = axes.text(
            0, 0, name, fontsize=size, color=colour, weight=weight, transform=None, zorder=6
        )
        box = text.get_window_extent(renderer)
        anchor: Any = (
            to_pixels((x, y))
            if x is not None
            else (inside[2] - box.width, to_pixels((axes.get_xlim()[0], y))[1])
        )
        spot = place_label(
            (anchor[0], anchor[1]), (box.width, box.height), placed, dots, inside, scale
        )
        placed.append(spot)
        text.remove()
        # In points from the anchor, so that the place holds whatever the resolution of the file is.
        offset = ((spot[0] - anchor[0]) / scale, (spot[1] - anchor[1]) / scale)
        far = distance_to_box(anchor, spot) > (19 if star else 12) * scale and x is not None
        data: Any = (x, y) if x is not None else axes.transData.inverted().transform(anchor)
        axes.annotate(
            name, data, offset, textcoords="offset points", fontsize=size, color=colour, weight=weight, zorder=6,
            arrowprops={"arrowstyle": "-", "color": colour, "alpha": 0.5, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 4}
            if far else None,
        ).set_in_layout(False)  # fmt: skip
