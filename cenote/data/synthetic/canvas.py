"""The canvas of a scene. Positions are fractions of the side; y goes down."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image

from .paint import RGB, SUBPIXELS, scanlines
from .rng import DIRECTIONS, PortableRng, direction

_CIRCLE = [direction(k * DIRECTIONS // 24) for k in range(24)]
DENSITIES = {"sparse": 2, "medium": 5, "dense": 9}  # props
CLOUD = ((-0.5, 0.05, 0.3), (0.0, -0.1, 0.42), (0.45, 0.02, 0.34), (0.0, 0.1, 0.5))


class SceneCanvas:
    """Canvas with the elements of scenes; `props` is the number of small things in a scene."""

    def __init__(self, side: int, rng: PortableRng, density: str) -> None:
        self.side, self.rng, self.props = side, rng, DENSITIES[density]
        self.pixels = bytearray(side * side * 3)
        # Polygons to paint: many at once are faster.
        self.colours: list[RGB] = []
        self.corners: list[float] = []
        self.ends: list[int] = []

    @property
    def image(self) -> Image.Image:
        self.flush()
        return Image.frombytes("RGB", (self.side, self.side), bytes(self.pixels))

    def flush(self) -> None:
        """Paint the waiting polygons."""
        if not self.colours:
            return
        steps = np.floor(np.array(self.corners) * (self.side * SUBPIXELS)).astype(np.int64)
        starts, stops, owners = scanlines(steps[::2], steps[1::2], self.ends, self.side, self.side)
        rows = {colour: bytes(colour) * self.side for colour in set(self.colours)}
        pixels, row_of = self.pixels, [rows[colour] for colour in self.colours]
        for start, stop, owner in zip(starts, stops, owners, strict=True):
            pixels[3 * start : 3 * stop] = row_of[owner][: 3 * (stop - start)]
        self.colours, self.corners, self.ends = [], [], []

    def gradient(
        self,
        top: RGB,
        bottom: RGB,
        y1: float = 0.0,
        y2: float = 1.0,
        x1: float = 0.0,
        x2: float = 1.0,
    ) -> None:
        """Fill a rectangle with a vertical gradient."""
        self.flush()
        first, last, left, right = (int(v * self.side) for v in (y1, y2, x1, x2))
        height, k = last - first, np.arange(last - first, dtype=np.int32)[:, None]
        rows = (np.array(top, np.int32) * (height - k) + np.array(bottom, np.int32) * k) // height
        column = Image.fromarray(rows[:, None].astype(np.uint8))
        block = column.resize((right - left, height), Image.Resampling.NEAREST)
        if right - left == self.side:
            self.pixels[3 * first * self.side : 3 * last * self.side] = block.tobytes()
        else:
            image = self.image
            image.paste(block, (left, first))
            self.pixels[:] = image.tobytes()

    def poly(self, colour: RGB, *xy: float) -> None:
        self.colours.append(colour)
        self.corners += xy
        self.ends.append(len(self.corners) // 2)

    def box(self, colour: RGB, x1: float, y1: float, x2: float, y2: float) -> None:
        self.poly(colour, x1, y1, x2, y1, x2, y2, x1, y2)

    def oval(self, colour: RGB, x: float, y: float, rx: float, ry: float | None = None) -> None:
        ry = rx if ry is None else ry
        circle = _CIRCLE[::3]
        if rx * self.side > 4:  # the larger, the more corners
            circle = _CIRCLE if rx * self.side > 12 else _CIRCLE[::2]
        self.poly(colour, *(v for c, s in circle for v in (x + c * rx, y + s * ry)))

    def line(self, colour: RGB, width: float, x1: float, y1: float, x2: float, y2: float) -> None:
        length = math.sqrt((x2 - x1) * (x2 - x1) + (y2 - y1) * (y2 - y1)) or 1.0
        dx, dy = (y1 - y2) / length * width / 2, (x2 - x1) / length * width / 2
        self.poly(colour, x1 + dx, y1 + dy, x2 + dx, y2 + dy, x2 - dx, y2 - dy, x1 - dx, y1 - dy)

    def hills(self, colour: RGB, y: float, height: float, bends: int = 4) -> None:
        """Fill everything below a smooth skyline."""
        heights = [y - self.rng.uniform(0, height) for _ in range(bends + 1)]
        outline = [0.0, 1.0]
        for k in range(bends):
            for j in range(6):
                t = j / 6
                t = t * t * (3 - 2 * t)
                outline += [(k + j / 6) / bends, heights[k] * (1 - t) + heights[k + 1] * t]
        self.poly(colour, *outline, 1.0, heights[-1], 1.0, 1.0)

    def peaks(self, colour: RGB, cap: RGB | None, y: float, height: float, count: int) -> None:
        """Paint mountains, with snow on top if there is a `cap`."""
        for k in range(count):
            x = (k + self.rng.uniform(0.1, 0.9)) / count
            h, w = self.rng.uniform(0.5, 1) * height, self.rng.uniform(0.7, 1.1) / count
            self.poly(colour, x - w, y, x, y - h, x + w, y)
            if cap:
                snow = (x - w * 0.3, y - h * 0.7, x, y - h, x + w * 0.3, y - h * 0.7)
                edge = (x + w * 0.1, y - h * 0.6, x - w * 0.1, y - h * 0.66)
                self.poly(cap, *snow, *edge)

    def clouds(self, colour: RGB, low: float = 0.05, high: float = 0.3) -> None:
        for x, y, s in self.scatter(max(self.props // 2, 1), low, high):
            w = 0.1 + 0.12 * s
            for dx, dy, r in CLOUD:
                self.oval(colour, x + dx * w, y + dy * w, r * w, r * w * 0.6)

    def round_tree(self, leaves: RGB, trunk: RGB, x: float, y: float, h: float) -> None:
        """Paint a tree of height h that stands at (x, y)."""
        self.box(trunk, x - h * 0.06, y - h * 0.5, x + h * 0.06, y)
        self.oval(shade(leaves, -18), x, y - h * 0.62, h * 0.34, h * 0.38)
        self.oval(leaves, x - h * 0.05, y - h * 0.66, h * 0.27, h * 0.3)
        self.oval(shade(leaves, 14), x - h * 0.1, y - h * 0.76, h * 0.13, h * 0.12)

    def fir(self, leaves: RGB, trunk: RGB, x: float, y: float, h: float) -> None:
        self.box(trunk, x - h * 0.05, y - h * 0.2, x + h * 0.05, y)
        for k, w in enumerate((0.34, 0.27, 0.19)):
            low, tone = y - h * (0.12 + 0.26 * k), shade(leaves, 10 * k - 8)
            self.poly(tone, x - h * w, low, x, low - h * 0.42, x + h * w, low)

    def dots(self, colours: Sequence[RGB], count: int, y1: float, y2: float, r: float) -> None:
        for x, y, s in self.scatter(count, y1, y2):
            self.oval(self.rng.choice(colours), x, y, r * (0.6 + 0.6 * s), r * (0.5 + 0.5 * s))

    def scatter(self, count: int, y1: float, y2: float) -> list[tuple[float, float, float]]:
        """Return positions (x, y, nearness 0 to 1), spread over the width, far ones first."""
        positions = []
        for k in range(count):
            near = self.rng.random()
            x = (k + self.rng.random()) / count
            positions.append((x, y1 + (y2 - y1) * near, near))
        return sorted(positions, key=lambda position: position[2])


def shade(colour: RGB, by: int) -> RGB:
    """Return a lighter or darker color."""
    red, green, blue = (min(max(v + by, 0), 255) for v in colour)
    return red, green, blue
