"""Placement of text labels beside the points of a plot."""

from __future__ import annotations

from collections.abc import Sequence

PixelBox = tuple[float, float, float, float]  # x0, y0, x1, y1
Dot = tuple[float, float, float]  # x, y and radius
RADII = (7, 12, 18, 26, 36, 48, 62, 78, 96, 120)
DIRECTIONS = (
    *((1, 0), (-1, 0), (0.7, 0.7), (0.7, -0.7), (-0.7, 0.7), (-0.7, -0.7)),
    *((0, 1), (0, -1), (1, 0.4), (1, -0.4), (-1, 0.4), (-1, -0.4)),
)


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
    return 0.0 if direction > threshold else 0.5


def _overlap(a: PixelBox, b: PixelBox) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
