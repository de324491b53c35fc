"""Pieces that several shapes share, so that one piece alone does not give the class away."""

from __future__ import annotations

from .shape import Part, curve, line, oval, poly, star


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
