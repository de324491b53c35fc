"""Points with their spreads and names, as SVG in the page's own colours; the numbers again as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..tournament_plot import Box, place_label
from .axes import Axis, axis_of, short
from .blocks import Head, Point, Scatter, Table
from .markup import Html, el
from .table import sheet

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 900, 58, 24, 18, 54
LETTERS = 13.5  # pixels of a name
COLOURS = 8  # in the style sheet
# Paths around 0, 0: told apart also by those who see fewer colours.
SHAPES = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "M-4.5-4.5h9v9h-9z",
    "M0-6.4 6.4 0 0 6.4-6.4 0z",
    "M0-6 5.8 4.6h-11.6z",
    "M0 6 5.8-4.6h-11.6z",
    "M-2-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
    "M-6 0 4.6-5.8v11.6z",
    "M6 0-4.6-5.8v11.6z",
)
STAR = "M0-10 2.6-3.4 9.6-3.1 4.1 1.3 6 8.1 0 4.2-6 8.1-4.1 1.3-9.6-3.1-2.6-3.4z"


def draw_scatter(block: Scatter, name: str) -> Html:
    """What is no number has no place."""
    block = replace(
        block, points=tuple(p for p in block.points if math.isfinite(p.x) and math.isfinite(p.y))
    )
    if not block.points:
        return el("p", "Nothing to draw.", class_="empty")
    groups = list(dict.fromkeys(point.group for point in block.points))
    parts = [
        el(
            "div",
            plot(block, groups),
            class_="scroll",
            tabindex=0,
            role="region",
            aria_label=block.title,
        )
    ]
    if groups != [""]:
        parts.append(
            el("ul", [_legend(i, group) for i, group in enumerate(groups)], class_="legend")
        )
    heads = (Head("name"), Head("group"), Head(block.x, True), Head(block.y, True), Head("±", True))
    rows = tuple((p.name, p.group, p.x, p.y, p.spread or None) for p in block.points)
    numbers = sheet(Table(f"{block.title}, as numbers", heads, rows))
    parts.append(
        el("details", el("summary", "The same as numbers"), el("div", numbers, class_="scroll"))
    )
    return el("div", parts)


def plot(block: Scatter, groups: Sequence[str]) -> Html:
    """Crowded plots are higher: names need room."""
    height = 420 + 9 * max(0, len(block.points) - 12)
    log = block.log_x and min(point.x for point in block.points) > 0
    across = axis_of([point.x for point in block.points], LEFT, WIDTH - RIGHT, log)
    reach = [y for point in block.points for y in (point.y - point.spread, point.y + point.spread)]
    up = axis_of(reach, height - BOTTOM, TOP)
    told = f"{len(block.points)} points, {block.y} over {block.x}. The same numbers stand in the table below."
    body = [el("title", f"{block.title}: {told}"), *_frame(block, across, up, height)]
    spots = names_at(block.points, across, up, height)
    body += [
        _point(p, groups.index(p.group), across, up, spot)
        for p, spot in zip(block.points, spots, strict=True)
    ]
    return el("svg", body, viewBox=f"0 0 {WIDTH} {height}", role="img", class_="plot")


def names_at(points: Sequence[Point], across: Axis, up: Axis, height: float) -> list[Box]:
    """A free place for each name: the best first, and no two of them touch where there is room."""
    dots = [(across(point.x), up(point.y), 11.0 if point.best else 7.0) for point in points]
    inside = (LEFT + 2.0, float(TOP), float(WIDTH), height - BOTTOM - 2.0)
    taken: list[Box] = []
    spots: dict[int, Box] = {}
    for i in sorted(range(len(points)), key=lambda i: (not points[i].best, -points[i].y)):
        # No browser to measure with: 0.58 of the height is wide for a system's letters.
        size = (len(points[i].name) * LETTERS * (0.64 if points[i].best else 0.58), LETTERS * 1.15)
        spots[i] = place_label(dots[i][:2], size, taken, dots, inside, 1.25)
        taken.append(spots[i])
    return [spots[i] for i in range(len(points))]


def shape_of(group: int) -> str:
    """The ninth group has the first one's colour, and another shape."""
    return SHAPES[(group + group // COLOURS) % len(SHAPES)]


def _frame(block: Scatter, across: Axis, up: Axis, height: float) -> list[Html]:
    floor, body = height - BOTTOM, []
    for mark in up.marks():
        y = up(mark)
        body.append(el("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
        body.append(el("text", short(mark), x=LEFT - 9, y=y + 4.5, class_="mark end"))
    for mark in across.marks():
        x = across(mark)
        body.append(el("line", x1=x, x2=x, y1=floor, y2=floor + 5, class_="tick"))
        body.append(el("text", short(mark), x=x, y=floor + 21, class_="mark middle"))
    body.append(el("line", x1=LEFT, x2=WIDTH - RIGHT, y1=floor, y2=floor, class_="tick"))
    body.append(
        el("text", block.x, x=(LEFT + WIDTH - RIGHT) / 2, y=height - 9, class_="axis middle")
    )
    body.append(el("text", block.y, x=LEFT + 6, y=TOP + 4, class_="axis"))
    return body


def _point(point: Point, group: int, across: Axis, up: Axis, spot: Box) -> Html:
    x, y = across(point.x), up(point.y)
    spread = f" ± {point.spread:.2g}" if point.spread else ""
    body = [el("title", f"{point.name}: {point.y:.4g}{spread} at {short(point.x)}")]
    if point.spread:
        body.append(
            el(
                "line",
                x1=x,
                x2=x,
                y1=up(point.y - point.spread),
                y2=up(point.y + point.spread),
                class_="bar",
            )
        )
    near = (min(max(x, spot[0]), spot[2]), min(max(y, spot[1]), spot[3]))
    if (near[0] - x) ** 2 + (near[1] - y) ** 2 > 22**2:
        body.append(el("line", x1=x, y1=y, x2=near[0], y2=near[1], class_="lead"))
    shape = STAR if point.best else shape_of(group)
    body.append(el("path", d=shape, transform=f"translate({x:.1f} {y:.1f})"))
    body.append(el("text", point.name, x=spot[0], y=spot[3] - 3.5))
    return el("g", body, class_=f"point g{group % COLOURS}{' best' if point.best else ''}")


def _legend(place: int, group: str) -> Html:
    mark = el("path", d=shape_of(place), transform="translate(8 8)")
    drawn = el(
        "svg", mark, viewBox="0 0 16 16", aria_hidden="true", class_=f"point g{place % COLOURS}"
    )
    return el("li", drawn, group or "no group")
