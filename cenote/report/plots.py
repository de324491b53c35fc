"""Plots with matplotlib: their colours, a scatter plot with names that do not overlap, bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .blocks import Bars, Point, Scatter

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Distinguishable with colour blindness, and by their markers.
COLOURS = (
    *("#4477aa", "#ee6677", "#228833", "#b8860b", "#aa3377", "#5fb3d9", "#555555", "#e07b39"),
    "#222222",
)
MARKERS = "osD^vPX<>"
PAPER, INK, FADED = "#faf9f6", "#1c1c1e", "#787672"


class PointStyle(NamedTuple):
    """Sizes in points of a point and of its name."""

    marker: str  # empty: by group
    size: float
    radius: float
    zorder: int
    font_size: float
    weight: str
    distance: float  # from which a line connects the name with its point


BEST = PointStyle("*", 17, 9, 4, 10.5, "bold", 19)
NORMAL = PointStyle("", 8, 5, 3, 9, "normal", 12)
PixelBox = tuple[float, float, float, float]  # x0, y0, x1, y1
Dot = tuple[float, float, float]  # x, y and radius
RADII = (7, 12, 18, 26, 36, 48, 62, 78, 96, 120)
DIRECTIONS = (
    *((1, 0), (-1, 0), (0.7, 0.7), (0.7, -0.7), (-0.7, 0.7), (-0.7, -0.7)),
    *((0, 1), (0, -1), (1, 0.4), (1, -0.4), (-1, 0.4), (-1, -0.4)),
)


def new_figure(width: float, height: float, title: str = "", note: str = "") -> tuple[Figure, Axes]:
    """Create a figure with one plot; `note` is at the right of the title. Sizes are in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor=PAPER, layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor(PAPER)
    axes.set_title(title, loc="left", color=INK, fontsize=13, pad=14)
    axes.set_title(note, loc="right", color=FADED, fontsize=9, pad=14)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def draw_bars(block: Bars, title: str, note: str, x_label: str) -> tuple[Figure, Axes]:
    """Draw horizontal bars in percent, the first on top, in a colour for each group."""
    bars = block.bars
    figure, axes = new_figure(9, 1.4 + 0.34 * len(bars), title, note)
    groups = list(dict.fromkeys(bar.group for bar in bars))
    colours = [COLOURS[groups.index(bar.group)] for bar in bars]
    axes.barh(range(len(bars)), [bar.value for bar in bars], color=colours, height=0.72, zorder=2)
    for y, bar in enumerate(bars):
        annotate(axes, f"{bar.value:.1f}", (100, y), 6)
    if block.baseline is not None:
        x = block.baseline.value
        axes.axvline(x, color=INK, linewidth=1, linestyle="--", zorder=4)
        annotate(axes, f"{block.baseline.name} {x:.1f}", (x, -0.75), 4, fontsize=9)
    if len(groups) > 1:
        for group, colour in zip(groups, COLOURS, strict=False):
            axes.barh(0, 0, color=colour, label=group)
        figure.legend(loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    axes.set_yticks(range(len(bars)), [bar.name for bar in bars], color=INK)
    axes.set_ylim(len(bars) - 0.4, -1.1)
    axes.set_xlim(0, 100)
    axes.set_xlabel(x_label, color=INK)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return figure, axes


def annotate(
    axes: Axes, text: str, point: tuple[float, float], offset: float, **style: Any
) -> None:
    """Write a text, `offset` points to the right of a point of the plot."""
    style = {"textcoords": "offset points", "va": "center", "color": INK} | style
    axes.annotate(text, point, (offset, 0), **style)


def draw_scatter(block: Scatter, title: str = "") -> Figure:
    """Draw points with their deviations; a point without x is a horizontal line."""
    legend = ""
    if any(point.best for point in block.points):
        legend = "stars: winners of their groups"
    height = 6 + 0.08 * max(0, len(block.points) - 12)
    figure, axes = new_figure(9.5, height, title, legend)
    groups = list(dict.fromkeys(point.group for point in block.points))
    for number, point in enumerate(block.points):
        _draw_point(axes, point, groups.index(point.group), f"point-{number}")
    if block.log_x:
        from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        line = sorted((point.x, point.y) for point in block.points if point.x is not None)
        x, y = ([point[i] for point in line] for i in range(2))
        axes.plot(x, y, color=COLOURS[0], linewidth=1, alpha=0.5, zorder=1)
    axes.set_xlabel(block.x_label, color=INK)
    axes.set_ylabel(block.y_label, color=INK)
    axes.margins(0.09, 0.08)
    if block.max_y is not None:
        axes.set_ylim(top=min(axes.get_ylim()[1], block.max_y))
    if len(groups) > 1:
        for i, group in enumerate(groups):
            axes.plot([], [], _marker(i), color=_colour(i), label=group, markersize=8)
        figure.legend(loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    _draw_names(figure, axes, block.points, groups)
    return figure


def _colour(group: int) -> str:
    return COLOURS[group % len(COLOURS)]


def _marker(group: int) -> str:
    return MARKERS[group % len(MARKERS)]


def _draw_point(axes: Axes, point: Point, group: int, gid: str) -> None:
    colour = _colour(group)
    if point.x is None:
        axes.axhline(point.y, color=colour, linewidth=1.2, linestyle="--", alpha=0.8, gid=gid)
        return
    deviation = point.deviation or None
    axes.errorbar(point.x, point.y, deviation, color=colour, elinewidth=0.9, alpha=0.45, zorder=2)
    style = _style(point)
    axes.plot(
        point.x,
        point.y,
        style.marker or _marker(group),
        color=colour,
        markersize=style.size,
        markeredgecolor=PAPER,
        markeredgewidth=0.8,
        clip_on=False,  # at the end of an axis
        zorder=style.zorder,
        gid=gid,
    )


def _style(point: Point) -> PointStyle:
    return BEST if point.best else NORMAL


def _draw_names(figure: Figure, axes: Axes, points: Sequence[Point], groups: Sequence[str]) -> None:
    """Write names beside their points without overlap, winners first; distant ones with a line."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer: Any = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    figure.draw_without_rendering()  # fixes the layout that is measured below
    frame = axes.get_window_extent(renderer)
    area: PixelBox = (frame.x0, frame.y0, frame.x1, frame.y1)
    to_pixels, scale = axes.transData.transform, figure.dpi / 72
    dots: list[Dot] = []
    for point in points:
        if point.x is not None:
            x, y = to_pixels((point.x, point.y))
            dots.append((x, y, _style(point).radius * scale))
    labels: list[PixelBox] = []
    for point in sorted(points, key=lambda point: (not point.best, -point.y)):
        sizes, colour = _style(point), _colour(groups.index(point.group))
        style: dict[str, Any] = {"fontsize": sizes.font_size, "weight": sizes.weight}
        style |= {"color": colour, "zorder": 6}
        text = axes.text(0, 0, point.name, transform=None, **style)
        box = text.get_window_extent(renderer)
        text.remove()
        if point.x is None:  # at the right end of its line
            anchor = (area[2] - box.width, float(to_pixels((axes.get_xlim()[0], point.y))[1]))
        else:
            x, y = to_pixels((point.x, point.y))
            anchor = (float(x), float(y))
        place = place_label(anchor, (box.width, box.height), labels, dots, area, scale)
        labels.append(place)
        line = None
        if point.x is not None and distance_to_box(anchor, place) > sizes.distance * scale:
            line = {"arrowstyle": "-", "color": colour, "alpha": 0.5, "linewidth": 0.7}
            line |= {"shrinkA": 0, "shrinkB": 4}
        # In points from the anchor: independent of the resolution of the file.
        offset = ((place[0] - anchor[0]) / scale, (place[1] - anchor[1]) / scale)
        x, y = axes.transData.inverted().transform(anchor)
        style |= {"textcoords": "offset points", "arrowprops": line}
        axes.annotate(point.name, (x, y), offset, **style).set_in_layout(False)


def place_label(
    anchor: tuple[float, float],
    size: tuple[float, float],
    labels: Sequence[PixelBox],
    dots: Sequence[Dot],
    area: PixelBox,
    scale: float = 1.0,
) -> PixelBox:
    """Return the nearest free box of `size` around a point, or the least crowded one."""
    width, height = size
    candidates = []
    for radius in RADII:
        for dx, dy in DIRECTIONS:
            x, y = anchor[0] + dx * radius * scale, anchor[1] + dy * radius * scale
            left = x - width * _alignment(dx, 0.0)
            low = y - height * _alignment(dy, 0.5)
            box = (left, low, left + width, low + height)
            wide = (box[0] - 2 * scale, box[1] - scale, box[2] + 2 * scale, box[3] + scale)
            crowding = sum(_overlap(wide, label) for label in labels)
            crowding += sum(_overlap(box, (a - r, b - r, a + r, b + r)) for a, b, r in dots)
            crowding += width * height - _overlap(box, area)
            if crowding < 1:
                return box
            candidates.append((crowding, box))
    return min(candidates, key=lambda candidate: candidate[0])[1]


def distance_to_box(point: Sequence[float], box: PixelBox) -> float:
    """Return the distance of a point to a box; 0 inside."""
    dx = max(box[0] - point[0], 0, point[0] - box[2])
    dy = max(box[1] - point[1], 0, point[1] - box[3])
    return float((dx * dx + dy * dy) ** 0.5)


def _alignment(direction: float, threshold: float) -> float:
    """Return which share of a label is before the anchor: all, none or half of it."""
    if direction < -threshold:
        return 1.0
    if direction > threshold:
        return 0.0
    return 0.5


def _overlap(a: PixelBox, b: PixelBox) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
