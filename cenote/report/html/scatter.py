"""Layout of a scatter plot in pixels: axes with round ticks, and names that do not overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..labels import PixelBox, distance_to_box, place_label
from .blocks import Point, Scatter

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 900, 58, 24, 18, 54
FONT_SIZE = 13.5
MAX_LINEAR_TICKS, MAX_LOG_TICKS = 8, 8
MAX_LABEL_DISTANCE = 22  # pixels from which a line connects a name with its point


@dataclass(frozen=True)
class Axis:
    """Map values from `low` to `high` to pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def around(cls, values: Sequence[float], start: float, end: float, log: bool = False) -> Axis:
        """Return an axis with a margin around the values."""
        low, high = min(values), max(values)
        if log:
            factor = max((high / low) ** 0.08, 1.15)
            return cls(low / factor, high * factor, start, end, True)
        margin = (high - low) * 0.08 or max(abs(high) * 0.08, 1.0)
        return cls(low - margin, high + margin, start, end)

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round values inside the axis: 1, 2 and 5 times powers of ten where they fit."""
        from matplotlib.ticker import MaxNLocator

        if self.log:
            exponents = range(
                math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1
            )
            for factors in ((1, 2, 5), (1, 3), (1,)):
                ticks = [f * 10.0**exponent for exponent in exponents for f in factors]
                ticks = [tick for tick in ticks if self.low <= tick <= self.high]
                if len(ticks) <= MAX_LOG_TICKS:
                    break
            if len(ticks) > 1:
                return ticks
        # A logarithmic axis of less than an octave may have no round value: then as a linear one.
        count = 4 if self.log else MAX_LINEAR_TICKS
        values = MaxNLocator(count, steps=[1, 2, 5, 10]).tick_values(self.low, self.high)
        return [float(tick) for tick in values if self.low <= tick <= self.high]


@dataclass(frozen=True)
class PlacedPoint:
    """A point in pixels: its error bar from `top` to `bottom`, its name, the line to its name."""

    point: Point
    group: int
    x: float
    y: float
    top: float
    bottom: float
    label: PixelBox
    leader: tuple[float, float] | None  # where the line from the point to a distant name ends


@dataclass(frozen=True)
class ScatterLayout:
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    x_ticks: tuple[tuple[float, str], ...]  # pixel and text
    y_ticks: tuple[tuple[float, str], ...]
    points: tuple[PlacedPoint, ...]
    groups: tuple[str, ...]


def lay_out(block: Scatter) -> ScatterLayout | None:
    """Place everything; None if no point has finite coordinates. Crowded plots are higher."""
    points = [p for p in block.points if math.isfinite(p.x) and math.isfinite(p.y)]
    if not points:
        return None
    height = 420 + 9 * max(0, len(points) - 12)
    right, bottom = WIDTH - RIGHT, height - BOTTOM
    log = block.log_x and min(point.x for point in points) > 0
    x_axis = Axis.around([point.x for point in points], LEFT, right, log)
    reach = [y for p in points for y in (p.y - p.deviation, p.y + p.deviation)]
    y_axis = Axis.around(reach, bottom, TOP)
    groups = tuple(dict.fromkeys(point.group for point in points))
    placed = []
    for point, label in zip(points, place_names(points, x_axis, y_axis), strict=True):
        x, y = x_axis(point.x), y_axis(point.y)
        nearest = (min(max(x, label[0]), label[2]), min(max(y, label[1]), label[3]))
        far = distance_to_box((x, y), label) > MAX_LABEL_DISTANCE
        placed.append(
            PlacedPoint(
                point=point,
                group=groups.index(point.group),
                x=x,
                y=y,
                top=y_axis(point.y + point.deviation),
                bottom=y_axis(point.y - point.deviation),
                label=label,
                leader=nearest if far else None,
            )
        )
    return ScatterLayout(
        WIDTH,
        height,
        LEFT,
        right,
        TOP,
        bottom,
        tuple((x_axis(tick), short_number(tick)) for tick in x_axis.ticks()),
        tuple((y_axis(tick), short_number(tick)) for tick in y_axis.ticks()),
        tuple(placed),
        groups,
    )


def place_names(points: Sequence[Point], x_axis: Axis, y_axis: Axis) -> list[PixelBox]:
    """Return a free box for each name, the best points first."""
    dots = [(x_axis(p.x), y_axis(p.y), 11.0 if p.best else 7.0) for p in points]
    area = (LEFT + 2.0, float(TOP), float(WIDTH), y_axis.start - 2.0)
    placed: dict[int, PixelBox] = {}
    for i in sorted(range(len(points)), key=lambda i: (not points[i].best, -points[i].y)):
        # An estimate, without a browser: 0.58 of the height is wide for a system font.
        letter = FONT_SIZE * (0.64 if points[i].best else 0.58)
        size = (len(points[i].name) * letter, FONT_SIZE * 1.15)
        placed[i] = place_label(dots[i][:2], size, list(placed.values()), dots, area, 1.25)
    return [placed[i] for i in range(len(points))]


def short_number(value: float) -> str:
    """Return 20000 as '20k'."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"
