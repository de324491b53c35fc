"""Classes of objects as filled polygons; shapes.txt declares them with functions of this file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .rng import DIRECTIONS, direction

# What a polygon is painted with: the object's color, a darker and a lighter tone of it, a second
# color, ink, white, and the second tone of a texture, which no shape uses by itself.
ROLES = ("none", "main", "dark", "light", "accent", "ink", "white", "pattern")
SUBCLASSES = 5  # as in a superclass of CIFAR-100; the collage splits them 2, 1, 2
CURVE_STEPS = 6  # points per segment of a curve
Point = tuple[float, float]
Points = tuple[Point, ...]


class RolePolygon(NamedTuple):
    """A filled polygon and what it is painted with."""

    role: str
    points: Points


Polygons = tuple[RolePolygon, ...]
Outline = tuple[npt.NDArray[np.float64], list[tuple[int, int]]]


@dataclass(frozen=True, eq=False)
class ObjectShape:
    """A class of objects: what all share, and the small marks in which subclasses differ."""

    name: str
    polygons: Polygons
    marks: dict[str, Polygons] = field(default_factory=dict)  # without a mark: subclass `plain`
    upright: bool = True  # False: it may have any orientation
    plural: str = ""

    @property
    def subclasses(self) -> list[str]:
        return ["plain", *self.marks]

    @cache  # noqa: B019  # the few shapes live as long as the process
    def outline(self, subclass: str) -> Outline:
        """Return (N, 2) points from -1 to 1, and the role and the end of each polygon.

        Marks do not change the scale.
        """
        x, y = zip(*(point for polygon in self.polygons for point in polygon.points), strict=True)
        centre = (min(x) + max(x)) / 2, (min(y) + max(y)) / 2
        half = max(max(x) - min(x), max(y) - min(y)) / 2
        polygons = self.polygons + self.marks.get(subclass, ())
        points = np.array([p for polygon in polygons for p in polygon.points], np.float64)
        ends = np.cumsum([len(polygon.points) for polygon in polygons]).tolist()
        roles = [ROLES.index(polygon.role) for polygon in polygons]
        return (points - centre) / half, list(zip(roles, ends, strict=True))


def poly(role: str, *xy: float) -> RolePolygon:
    return RolePolygon(role, _points(xy))


def box(role: str, x1: float, y1: float, x2: float, y2: float) -> RolePolygon:
    return poly(role, x1, y1, x2, y1, x2, y2, x1, y2)


def oval(
    role: str, x: float, y: float, rx: float, ry: float | None = None, turn: int = 0
) -> RolePolygon:
    """Return an ellipse; `turn` is in degrees, clockwise."""
    ry = ry or rx
    cos, sin = direction(2 * turn)
    points = []
    for k in range(24):
        c, s = direction(k * DIRECTIONS // 24)
        points.append((x + c * rx * cos - s * ry * sin, y + c * rx * sin + s * ry * cos))
    return RolePolygon(role, tuple(points))


def blob(role: str, *xy: float) -> RolePolygon:
    """Return a smooth closed curve through the points."""
    points = _points(xy)
    n = len(points)
    spans = (_span(*(points[(k + d) % n] for d in (-1, 0, 1, 2))) for k in range(n))
    return RolePolygon(role, tuple(point for span in spans for point in span))


def line(role: str, width: float, *xy: float) -> RolePolygon:
    """Return a stroke along straight edges."""
    return RolePolygon(role, _stroke(_points(xy), width / 2))


def curve(role: str, width: float, *xy: float) -> RolePolygon:
    """Return a stroke along a smooth open curve."""
    points = _points(xy)
    padded = (points[0], *points, points[-1])
    path = [p for k in range(len(points) - 1) for p in _span(*padded[k : k + 4])]
    return RolePolygon(role, _stroke((*path, points[-1]), width / 2))


def star(
    role: str, x: float, y: float, r: float, rays: int = 5, inner: float = 0.45
) -> RolePolygon:
    """Return a star; `inner` is the inner radius as a fraction of r."""
    points = []
    for k in range(2 * rays):
        c, s = direction(k * DIRECTIONS // (2 * rays) - DIRECTIONS // 4)
        factor = (1, inner)[k % 2]
        points.append((x + c * r * factor, y + s * r * factor))
    return RolePolygon(role, tuple(points))


def mirrored(*polygons: RolePolygon) -> Polygons:
    """Return the polygons and their mirror images about x = 0."""
    images = (RolePolygon(role, tuple((-x, y) for x, y in points)) for role, points in polygons)
    return (*polygons, *images)


def _points(xy: tuple[float, ...]) -> Points:
    return tuple(zip(xy[::2], xy[1::2], strict=True))


def _span(a: Point, b: Point, c: Point, d: Point) -> Points:
    """Return points of a Catmull-Rom spline from b up to c."""
    points = []
    for k in range(CURVE_STEPS):
        t = k / CURVE_STEPS
        w0, w1 = -t + 2 * t * t - t * t * t, 2 - 5 * t * t + 3 * t * t * t
        w2, w3 = t + 4 * t * t - 3 * t * t * t, t * t * t - t * t
        x, y = (
            (w0 * p + w1 * q + w2 * r + w3 * s) / 2 for p, q, r, s in zip(a, b, c, d, strict=True)
        )
        points.append((x, y))
    return tuple(points)


def _stroke(path: Points, half: float) -> Points:
    """Return the polygon along one side of a path and back along the other."""
    left, right = [], []
    for k, (x, y) in enumerate(path):
        (x0, y0), (x1, y1) = path[max(k - 1, 0)], path[min(k + 1, len(path) - 1)]
        length = math.sqrt((x1 - x0) * (x1 - x0) + (y1 - y0) * (y1 - y0)) or 1.0
        nx, ny = (y0 - y1) / length * half, (x1 - x0) / length * half
        left.append((x + nx, y + ny))
        right.append((x - nx, y - ny))
    return (*left, *right[::-1])


# Details that several shapes share, so that a detail alone does not reveal the class.


def eye(x: float, y: float, r: float = 7) -> Polygons:
    return oval("white", x, y, r), oval("ink", x + r * 0.25, y, r * 0.6)


def wheel(x: float, y: float, r: float) -> Polygons:
    return oval("ink", x, y, r), oval("white", x, y, r * 0.5), oval("dark", x, y, r * 0.28)


def window(x1: float, y1: float, x2: float, y2: float) -> Polygons:
    reflection = poly("white", x1 + 2, y1 + 2, x2 - 2, y1 + 2, x1 + 2, y2 - 2)
    return box("ink", x1, y1, x2, y2), reflection


def legs(y1: float, y2: float, *xs: float) -> Polygons:
    return tuple(line("accent", 6, x, y1, x, y2, x + 12, y2) for x in xs)


def leaf(x: float, y: float, length: float, turn: int = 0, role: str = "accent") -> Polygons:
    vein = oval("dark", x, y, length * 0.8, length * 0.07, turn)
    return oval(role, x, y, length, length * 0.38, turn), vein


def badges(x: float, y: float, r: float) -> dict[str, Polygons]:
    """Return marks that fit on any body."""
    disc = oval("white", x, y, r)
    horizontal = line("ink", r * 0.5, x - r, y, x + r, y)
    vertical = line("ink", r * 0.5, x, y - r, x, y + r)
    smile = (x - r * 0.7, y - r * 0.1, x, y + r * 0.6, x + r * 0.7, y - r * 0.1)
    return {
        "starred": (disc, star("ink", x, y, r * 0.95)),
        "ringed": (oval("ink", x, y, r), oval("white", x, y, r * 0.68), oval("ink", x, y, r * 0.3)),
        "crossed": (disc, horizontal, vertical),
        "barred": tuple(
            box(role, x - r, y + d * r, x + r, y + (d + 0.5) * r)
            for role, d in zip(("white", "ink") * 2, (-1, -0.5, 0, 0.5), strict=True)
        ),
        "smiling": (disc, curve("ink", r * 0.35, *smile)),
    }


FUNCTIONS: dict[str, Any] = {
    function.__name__: function
    for function in (poly, box, oval, blob, line, curve, star, eye, wheel, window, legs, leaf)
}


def _read_shapes() -> dict[str, list[ObjectShape]]:
    """Read the shapes of each group; the file's first lines describe its format."""
    text = (files(__package__) / "shapes.txt").read_text("utf-8")
    groups: dict[str, list[ObjectShape]] = {}
    for section in text.partition("\n\n")[2].split("[")[1:]:
        title, _, paragraphs = section.partition("]\n\n")
        groups[title] = [_parse_shape(text) for text in paragraphs.strip().split("\n\n")]
    return groups


def _parse_shape(text: str) -> ObjectShape:
    body, *marks = text.split("\n  + ")
    header, _, lines = body.partition("\n")
    name, _, options = header.partition(":")
    words = options.split()
    subclasses = {}
    for mark in marks:
        key, _, polygons = mark.partition("\n")
        subclasses[key] = tuple(_parse_polygons(polygons.splitlines()))
    if "spot" in words:
        x, y, radius = map(int, words[1:4])
        for key, badge in badges(x, y, radius).items():
            if len(subclasses) < SUBCLASSES - 1:
                subclasses[key] = badge
    plural = words[words.index("plural") + 1] if "plural" in words else f"{name}s"
    outline = tuple(_parse_polygons(lines.splitlines()))
    return ObjectShape(name, outline, subclasses, "any-orientation" not in words, plural)


def _parse_polygons(lines: list[str]) -> Iterator[Any]:
    mirrored_polygons: Polygons = ()
    for line, following in zip_longest(lines, lines[1:], fillvalue=""):
        word, *values = line.split()
        if word == "mirrored":
            continue
        polygons = FUNCTIONS[word](*map(_number, values))
        if isinstance(polygons, RolePolygon):
            polygons = (polygons,)
        if not line.startswith("      "):
            yield from polygons
            continue
        mirrored_polygons += polygons
        if not following.startswith("      "):
            yield from mirrored(*mirrored_polygons)
            mirrored_polygons = ()


def _number(text: str) -> int | float | str:
    if not text[-1].isdigit():
        return text
    return float(text) if "." in text else int(text)


_groups = _read_shapes()
DISTRACTORS = _groups.pop("distractors")
# One of each group in turn: a world of few classes has some of every kind.
_rows = zip_longest(*_groups.values())
SHAPES = {shape.name: shape for row in _rows for shape in row if shape is not None}
