"""The canvas of a scene, with what scenes are made of. Places are shares of the side; y goes down."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image

from .paint import FINE, spans
from .rng import TURNS, Dice, direction

RGB = tuple[int, int, int]
_CIRCLE = [direction(k * TURNS // 24) for k in range(24)]
DENSITIES = {"sparse": 2, "medium": 5, "dense": 9}  # props


class Plate:
    def __init__(self, side: int, dice: Dice, density: str) -> None:
        self.side, self.dice, self.props = side, dice, DENSITIES[density]
        self.pixels = bytearray(side * side * 3)
        self.waiting: list[
            RGB
        ] = []  # colours of the polygons that are not painted yet: together they are faster
        self.corners: list[float] = []
        self.ends: list[int] = []

    @property
    def image(self) -> Image.Image:
        """What has been painted so far."""
        self.flush()
        return Image.frombytes("RGB", (self.side, self.side), bytes(self.pixels))

    def flush(self) -> None:
        if not self.waiting:
            return
        steps = np.floor(np.array(self.corners) * (self.side * FINE)).astype(np.int64)
        starts, stops, owners = spans(steps[::2], steps[1::2], self.ends, self.side, self.side)
        rows = {colour: bytes(colour) * self.side for colour in set(self.waiting)}
        pixels, colours = self.pixels, [rows[colour] for colour in self.waiting]
        for start, stop, owner in zip(starts, stops, owners, strict=True):
            pixels[3 * start : 3 * stop] = colours[owner][: 3 * (stop - start)]
        self.waiting, self.corners, self.ends = [], [], []

    def fade(
        self,
        top: RGB,
        bottom: RGB,
        y1: float = 0.0,
        y2: float = 1.0,
        x1: float = 0.0,
        x2: float = 1.0,
    ) -> None:
        """A gradient from one height to another."""
        self.flush()
        first, last, left, right = (int(v * self.side) for v in (y1, y2, x1, x2))
        k = np.arange(last - first, dtype=np.int32)[:, None]
        rows = (np.array(top, np.int32) * (last - first - k) + np.array(bottom, np.int32) * k) // (
            last - first
        )
        column = Image.fromarray(rows[:, None].astype(np.uint8))
        block = column.resize((right - left, last - first), Image.Resampling.NEAREST)
        if right - left == self.side:
            self.pixels[3 * first * self.side : 3 * last * self.side] = block.tobytes()
        else:
            whole = self.image
            whole.paste(block, (left, first))
            self.pixels[:] = whole.tobytes()

    def poly(self, colour: RGB, *xy: float) -> None:
        self.waiting.append(colour)
        self.corners += xy
        self.ends.append(len(self.corners) // 2)

    def box(self, colour: RGB, x1: float, y1: float, x2: float, y2: float) -> None:
        self.poly(colour, x1, y1, x2, y1, x2, y2, x1, y2)

    def oval(self, colour: RGB, x: float, y: float, rx: float, ry: float | None = None) -> None:
        ry = rx if ry is None else ry
        circle = (
            _CIRCLE if rx * self.side > 12 else _CIRCLE[::2] if rx * self.side > 4 else _CIRCLE[::3]
        )
        self.poly(colour, *(v for c, s in circle for v in (x + c * rx, y + s * ry)))

    def line(self, colour: RGB, width: float, x1: float, y1: float, x2: float, y2: float) -> None:
        length = math.sqrt((x2 - x1) * (x2 - x1) + (y2 - y1) * (y2 - y1)) or 1.0
        dx, dy = (y1 - y2) / length * width / 2, (x2 - x1) / length * width / 2
        self.poly(colour, x1 + dx, y1 + dy, x2 + dx, y2 + dy, x2 - dx, y2 - dy, x1 - dx, y1 - dy)

    def hills(self, colour: RGB, y: float, height: float, bends: int = 4) -> None:
        """Everything below a soft skyline."""
        heights = [y - self.dice.between(0, height) for _ in range(bends + 1)]
        outline = [0.0, 1.0]
        for k in range(bends):
            for j in range(6):
                t = j / 6
                t = t * t * (3 - 2 * t)
                outline += [(k + j / 6) / bends, heights[k] * (1 - t) + heights[k + 1] * t]
        self.poly(colour, *outline, 1.0, heights[-1], 1.0, 1.0)

    def peaks(self, colour: RGB, cap: RGB | None, y: float, height: float, count: int) -> None:
        for k in range(count):
            x = (k + self.dice.between(0.1, 0.9)) / count
            h, w = self.dice.between(0.5, 1) * height, self.dice.between(0.7, 1.1) / count
            self.poly(colour, x - w, y, x, y - h, x + w, y)
            if cap:
                self.poly(
                    cap,
                    x - w * 0.3,
                    y - h * 0.7,
                    x,
                    y - h,
                    x + w * 0.3,
                    y - h * 0.7,
                    x + w * 0.1,
                    y - h * 0.6,
                    x - w * 0.1,
                    y - h * 0.66,
                )

    def cloud(self, colour: RGB, x: float, y: float, w: float) -> None:
        for dx, dy, r in (
            (-0.5, 0.05, 0.3),
            (0.0, -0.1, 0.42),
            (0.45, 0.02, 0.34),
            (0.0, 0.1, 0.5),
        ):
            self.oval(colour, x + dx * w, y + dy * w, r * w, r * w * 0.6)

    def clouds(self, colour: RGB, low: float = 0.05, high: float = 0.3) -> None:
        for x, y, s in self.places(max(self.props // 2, 1), low, high):
            self.cloud(colour, x, y, 0.1 + 0.12 * s)

    def round_tree(self, leaves: RGB, trunk: RGB, x: float, y: float, h: float) -> None:
        """It stands at (x, y)."""
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
        for x, y, s in self.places(count, y1, y2):
            self.oval(self.dice.pick(colours), x, y, r * (0.6 + 0.6 * s), r * (0.5 + 0.5 * s))

    def places(self, count: int, y1: float, y2: float) -> list[tuple[float, float, float]]:
        """(x, y, nearness 0..1), far ones first, spread over the width."""
        found = []
        for k in range(count):
            near = self.dice.random()
            x = (k + self.dice.random()) / count
            found.append((x, y1 + (y2 - y1) * near, near))
        return sorted(found, key=lambda place: place[2])


def shade(colour: RGB, by: int) -> RGB:
    r, g, b = (min(max(v + by, 0), 255) for v in colour)
    return r, g, b
