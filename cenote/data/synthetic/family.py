"""One line of declaration for a class with its five subclasses."""

from __future__ import annotations

from collections.abc import Iterable

from .pieces import badges
from .shape import Part, Shape

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
