"""Shapes as short lists of parts, in percent: x to the right, y down, about -100..100. A part is a filled outline."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .rng import TURNS, direction

# What a part is painted with: the object's colour, a darker and a lighter tone of it, a second colour, ink, white, and
# (chosen by the texture, never by a shape) the other tone of a pattern.
ROLES = ("none", "main", "dark", "light", "accent", "ink", "white", "pattern")
Points = tuple[tuple[float, float], ...]
STEPS = 6  # points between two of a curve


class Part(NamedTuple):
    role: str
    points: Points


@dataclass(frozen=True)
class Shape:
    """A class of objects: what all its members share, and the small marks by which its subclasses differ."""

    name: str
    parts: tuple[Part, ...]
    marks: dict[str, tuple[Part, ...]] = field(
        default_factory=dict
    )  # the first subclass is `plain`
    upright: bool = True  # False: it may be turned to any side
    plural: str = ""

    @property
    def subclasses(self) -> list[str]:
        return ["plain", *self.marks]

    @cached_property
    def frame(self) -> tuple[float, float, float]:
        """The middle and half of the longer side, without marks."""
        x, y = zip(*(point for part in self.parts for point in part.points), strict=True)
        half = max(max(x) - min(x), max(y) - min(y)) / 2
        return (min(x) + max(x)) / 2, (min(y) + max(y)) / 2, half

    def outlines(self, subclass: str) -> tuple[npt.NDArray[np.float64], list[tuple[int, int]]]:
        """(N, 2) points in a frame of -1..1, and for each part its role and where its points end."""
        if subclass not in self._outlines:
            parts = self.parts + self.marks.get(subclass, ())
            middle_x, middle_y, half = self.frame
            points = np.array([point for part in parts for point in part.points], np.float64)
            ends = np.cumsum([len(part.points) for part in parts])
            points = (points - (middle_x, middle_y)) / half
            self._outlines[subclass] = (
                points,
                [(ROLES.index(p.role), int(e)) for p, e in zip(parts, ends, strict=True)],
            )
        return self._outlines[subclass]

    @cached_property
    def _outlines(self) -> dict[str, tuple[npt.NDArray[np.float64], list[tuple[int, int]]]]:
        return {}


def poly(role: str, *xy: float) -> Part:
    """Straight edges."""
    return Part(role, _pairs(xy))


def oval(role: str, x: float, y: float, rx: float, ry: float | None = None, turn: int = 0) -> Part:
    """`turn` in degrees, clockwise."""
    ry = rx if ry is None else ry
    cos, sin = direction(2 * turn)
    points = []
    for k in range(24):
        c, s = direction(k * TURNS // 24)
        points.append((x + c * rx * cos - s * ry * sin, y + c * rx * sin + s * ry * cos))
    return Part(role, tuple(points))


def blob(role: str, *xy: float) -> Part:
    """A smooth closed curve through the points."""
    points = _pairs(xy)
    n = len(points)
    return Part(
        role,
        tuple(p for k in range(n) for p in _span(*(points[(k + d) % n] for d in (-1, 0, 1, 2)))),
    )


def line(role: str, width: float, *xy: float) -> Part:
    """A stroke along straight edges."""
    return Part(role, _stroke(_pairs(xy), width / 2))


def curve(role: str, width: float, *xy: float) -> Part:
    """A stroke along a smooth open curve."""
    points = _pairs(xy)
    padded = (points[0], *points, points[-1])
    path = [p for k in range(len(points) - 1) for p in _span(*padded[k : k + 4])]
    return Part(role, _stroke((*path, points[-1]), width / 2))


def star(role: str, x: float, y: float, r: float, rays: int = 5, inner: float = 0.45) -> Part:
    points = []
    for k in range(2 * rays):
        c, s = direction(k * TURNS // (2 * rays) - TURNS // 4)
        points.append((x + c * r * (inner if k % 2 else 1), y + s * r * (inner if k % 2 else 1)))
    return Part(role, tuple(points))


def mirrored(*parts: Part) -> tuple[Part, ...]:
    """The parts and their images on the other side of x = 0."""
    return (*parts, *(Part(role, tuple((-x, y) for x, y in points)) for role, points in parts))


def _pairs(xy: tuple[float, ...]) -> Points:
    return tuple(zip(xy[::2], xy[1::2], strict=True))


def _span(
    a: tuple[float, float], b: tuple[float, float], c: tuple[float, float], d: tuple[float, float]
) -> Points:
    """Catmull-Rom from b up to c."""
    found = []
    for k in range(STEPS):
        t = k / STEPS
        w = (
            -t + 2 * t * t - t * t * t,
            2 - 5 * t * t + 3 * t * t * t,
            t + 4 * t * t - 3 * t * t * t,
            t * t * t - t * t,
        )
        found.append(
            tuple(
                (w[0] * p + w[1] * q + w[2] * r + w[3] * s) / 2
                for p, q, r, s in zip(a, b, c, d, strict=True)
            )
        )
    return tuple(found)  # type: ignore[arg-type]


def _stroke(path: Points, half: float) -> Points:
    """There on one side, back on the other."""
    left, right = [], []
    for k, (x, y) in enumerate(path):
        (x0, y0), (x1, y1) = path[max(k - 1, 0)], path[min(k + 1, len(path) - 1)]
        length = math.sqrt((x1 - x0) * (x1 - x0) + (y1 - y0) * (y1 - y0)) or 1.0
        nx, ny = (y0 - y1) / length * half, (x1 - x0) / length * half
        left.append((x + nx, y + ny))
        right.append((x - nx, y - ny))
    return (*left, *right[::-1])


def eye(x: float, y: float, r: float = 7) -> tuple[Part, ...]:
    return oval("white", x, y, r), oval("ink", x + r * 0.25, y, r * 0.6)


def wheel(x: float, y: float, r: float) -> tuple[Part, ...]:
    return oval("ink", x, y, r), oval("white", x, y, r * 0.5), oval("dark", x, y, r * 0.28)


def window(x1: float, y1: float, x2: float, y2: float) -> tuple[Part, ...]:
    return poly("ink", x1, y1, x2, y1, x2, y2, x1, y2), poly(
        "white", x1 + 2, y1 + 2, x2 - 2, y1 + 2, x1 + 2, y2 - 2
    )


def box(role: str, x1: float, y1: float, x2: float, y2: float) -> Part:
    return poly(role, x1, y1, x2, y1, x2, y2, x1, y2)


def legs(y1: float, y2: float, *xs: float) -> tuple[Part, ...]:
    return tuple(line("accent", 6, x, y1, x, y2, x + 12, y2) for x in xs)


def leaf(
    x: float, y: float, length: float, turn: int = 0, role: str = "accent"
) -> tuple[Part, ...]:
    return oval(role, x, y, length, length * 0.38, turn), oval(
        "dark", x, y, length * 0.8, length * 0.07, turn
    )


def badges(x: float, y: float, r: float) -> dict[str, tuple[Part, ...]]:
    """Marks that any body can wear."""
    ground = oval("white", x, y, r)
    return {
        "starred": (ground, star("ink", x, y, r * 0.95)),
        "ringed": (oval("ink", x, y, r), oval("white", x, y, r * 0.68), oval("ink", x, y, r * 0.3)),
        "crossed": (
            ground,
            line("ink", r * 0.5, x - r, y, x + r, y),
            line("ink", r * 0.5, x, y - r, x, y + r),
        ),
        "barred": tuple(
            box(c, x - r, y + d * r, x + r, y + (d + 0.5) * r)
            for c, d in zip(("white", "ink") * 2, (-1, -0.5, 0, 0.5), strict=True)
        ),
        "smiling": (
            ground,
            curve(
                "ink", r * 0.35, x - r * 0.7, y - r * 0.1, x, y + r * 0.6, x + r * 0.7, y - r * 0.1
            ),
        ),
    }


SUBCLASSES = 5  # as many as a super-class of CIFAR-100 has, which the collage of 002 splits 2, 1, 2

Parts = Part | tuple[Part, ...]


def family(
    name: str,
    *parts: Parts,
    spot: tuple[float, float, float],
    upright: bool = True,
    plural: str = "",
    **own: Parts | tuple[Parts, ...],
) -> Shape:
    """`own` are the marks of its own kind; badges at the `spot` (x, y, radius) fill up to five subclasses."""
    marks = {key.replace("_", "-"): flat([value]) for key, value in own.items()}
    for key, value in badges(*spot).items():
        if len(marks) < SUBCLASSES - 1:
            marks[key] = value
    return Shape(name, flat(parts), marks, upright, plural or f"{name}s")


def flat(parts: Iterable[object]) -> tuple[Part, ...]:
    found: list[Part] = []
    for part in parts:
        found += [part] if isinstance(part, Part) else flat(part)  # type: ignore[arg-type]
    return tuple(found)
