"""Paint the scenes: backgrounds outdoors and indoors.

Positions are fractions of the side; y goes down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image

from .paint import RGB, SUBPIXELS, scanlines
from .rng import DIRECTIONS, PortableRng, direction

_CIRCLE = [direction(k * DIRECTIONS // 24) for k in range(24)]
DENSITIES = {"sparse": 2, "medium": 5, "dense": 9}  # props
TRUNK = (104, 78, 60)
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
        first, last, left, right = (int(v * self.side) for v in (y1, y2, x1, x2))
        height, k = last - first, np.arange(last - first, dtype=np.int32)[:, None]
        rows = (np.array(top, np.int32) * (height - k) + np.array(bottom, np.int32) * k) // height
        column = Image.fromarray(rows[:, None].astype(np.uint8))
        block = column.resize((right - left, height), Image.Resampling.NEAREST)
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
        radius, ry = rx * self.side, ry or rx
        circle = _CIRCLE[:: 3 - (radius > 4) - (radius > 12)]  # the larger, the more corners
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
    red, green, blue = (min(max(v + by, 0), 255) for v in colour)
    return red, green, blue


def meadow(p: SceneCanvas) -> None:
    sky, rng = 0.5 + p.rng.uniform(-0.08, 0.1), p.rng
    p.gradient((126, 184, 232), (222, 238, 244), 0, sky)
    p.oval((255, 244, 200), rng.uniform(0.1, 0.9), rng.uniform(0.06, 0.2), 0.06)
    p.clouds((248, 250, 252))
    p.hills((142, 184, 128), sky, 0.12)
    for x, y, s in p.scatter(p.props // 2, sky, sky + 0.1):
        p.round_tree((92, 148, 84), TRUNK, x, y, 0.12 + 0.1 * s)
    p.gradient((150, 196, 104), (96, 156, 74), sky + 0.04, 1)
    p.hills((128, 184, 92), sky + 0.16, 0.08)
    p.dots([(250, 236, 130), (250, 250, 246), (236, 150, 170)], p.props * 4, sky + 0.18, 1, 0.012)
    for x, y, s in p.scatter(p.props * 3, sky + 0.2, 1):
        p.line((74, 132, 62), 0.006, x, y, x + 0.01, y - 0.03 - 0.03 * s)


def sea(p: SceneCanvas) -> None:
    level, rng = horizon(p, 0.42), p.rng
    p.gradient((112, 178, 226), (234, 240, 236), 0, level)
    p.clouds((250, 250, 250))
    p.peaks((150, 176, 190), None, level, 0.06, 3)
    p.gradient((60, 134, 178), (34, 104, 150), level, 1)
    for x, y, s in p.scatter(p.props * 5, level + 0.02, 0.84):
        w = 0.03 + 0.07 * s
        p.poly((124, 186, 212), x - w, y, x, y - 0.008, x + w, y, x, y + 0.006)
    shore = rng.uniform(0.86, 0.94)
    p.hills((238, 244, 240), shore - 0.01, 0.04, 3)
    p.hills((234, 214, 168), shore + 0.03, 0.03, 3)
    p.dots([(214, 188, 140), (246, 232, 200)], p.props * 2, shore + 0.04, 1, 0.01)


def horizon(p: SceneCanvas, middle: float) -> float:
    """Return a horizon near this height."""
    return middle + p.rng.uniform(-0.08, 0.08)


def desert(p: SceneCanvas) -> None:
    level, rng = horizon(p, 0.5), p.rng
    p.gradient((244, 176, 120), (252, 226, 178), 0, level)
    p.oval((255, 240, 196), rng.uniform(0.15, 0.85), level - rng.uniform(0.1, 0.3), 0.08)
    p.poly((196, 120, 86), 0, level, 0.0, level - 0.12, 0.2, level - 0.12, 0.26, level)
    p.poly((206, 130, 92), 0.66, level, 0.7, level - 0.1, 0.92, level - 0.1, 1, level)
    p.gradient((232, 180, 112), (214, 152, 88), level, 1)
    for k, tone in enumerate((0, -12, 8)):
        p.hills(shade((232, 178, 108), tone), level + 0.14 + 0.16 * k, 0.12, 3)
    for x, y, s in p.scatter(p.props, level + 0.05, 0.98):
        p.oval((164, 112, 80), x, y, 0.016 + 0.02 * s, 0.01 + 0.012 * s)
        p.line((120, 128, 76), 0.008, x + 0.06, y, x + 0.06, y - 0.04 - 0.04 * s)


def forest(p: SceneCanvas) -> None:
    rng = p.rng
    p.gradient((176, 206, 170), (84, 124, 84), 0, 0.8)
    for tone, low in (((128, 164, 122), 0.62), ((88, 132, 92), 0.7), ((58, 104, 74), 0.78)):
        for k in range(4 + p.props // 2):
            x, y = (k + rng.random()) / (4 + p.props // 2), low + rng.uniform(-0.03, 0.03)
            p.fir(tone, TRUNK, x, y, rng.uniform(0.4, 0.62))
    p.gradient((92, 116, 66), (62, 84, 50), 0.76, 1)
    p.hills((86, 112, 62), 0.82, 0.05)
    for x, y, s in p.scatter(p.props * 2, 0.82, 1):
        p.line((124, 154, 84), 0.008, x, y, x - 0.03, y - 0.04 - 0.04 * s)
        p.line((124, 154, 84), 0.008, x, y, x + 0.03, y - 0.04 - 0.04 * s)


def snow(p: SceneCanvas) -> None:
    level = horizon(p, 0.52)
    p.gradient((156, 184, 214), (232, 238, 246), 0, level)
    p.peaks((132, 150, 178), (244, 248, 252), level + 0.02, 0.34, 4)
    p.gradient((240, 244, 250), (204, 218, 236), level, 1)
    p.hills((232, 240, 248), level + 0.12, 0.1)
    for x, y, s in p.scatter(p.props, level + 0.04, 0.9):
        p.fir((84, 122, 118), TRUNK, x, y, 0.12 + 0.2 * s)
    p.hills((248, 250, 253), 0.92, 0.08, 3)
    p.dots([(255, 255, 255)], p.props * 5, 0, 1, 0.008)


def night(p: SceneCanvas) -> None:
    level, rng = horizon(p, 0.66), p.rng
    p.gradient((22, 26, 62), (72, 74, 128), 0, level + 0.1)
    p.dots([(250, 246, 220), (190, 204, 250)], p.props * 6, 0, level - 0.05, 0.006)
    x, y = rng.uniform(0.12, 0.88), rng.uniform(0.1, 0.24)
    p.oval((250, 244, 210), x, y, 0.08)
    p.oval((34, 38, 78), x + 0.035, y - 0.015, 0.07)
    p.peaks((48, 50, 98), None, level + 0.03, 0.22, 4)
    p.hills((36, 48, 78), level + 0.06, 0.12)
    for x, y, s in p.scatter(p.props, level + 0.05, level + 0.14):
        p.fir((26, 40, 62), (26, 30, 50), x, y, 0.12 + 0.16 * s)
    p.hills((28, 44, 62), level + 0.16, 0.06)
    p.dots([(250, 226, 130)], p.props, level + 0.1, 1, 0.008)


def farmland(p: SceneCanvas) -> None:
    level, rng = horizon(p, 0.46), p.rng
    p.gradient((184, 206, 220), (250, 234, 204), 0, level)
    p.clouds((254, 246, 234))
    p.hills((176, 164, 110), level, 0.1)
    for x, y, s in p.scatter(p.props // 2 + 1, level, level + 0.03):
        p.round_tree((198, 116, 60), TRUNK, x, y, 0.14 + 0.08 * s)
    p.box((222, 184, 92), 0, level + 0.02, 1, 1)
    middle = rng.uniform(0.3, 0.7)
    for k in range(-6, 7):
        foot = middle + k * 0.19
        top, y = middle + k * 0.035, level + 0.02
        p.poly((196, 152, 72), top, y, foot, 1, foot + 0.08, 1, top + 0.012, y)
    for x, y, s in p.scatter(p.props, level + 0.12, 0.96):
        p.oval((236, 206, 120), x, y, 0.03 + 0.04 * s, 0.024 + 0.03 * s)
        p.oval((208, 168, 88), x, y, 0.015 + 0.02 * s, 0.012 + 0.015 * s)


def volcano(p: SceneCanvas) -> None:
    level, rng = horizon(p, 0.62), p.rng
    p.gradient((96, 60, 76), (232, 140, 92), 0, level)
    x = rng.uniform(0.25, 0.75)
    for k in range(3 + p.props // 3):
        p.oval(
            shade((112, 88, 96), 9 * k),
            x + 0.05 * k + rng.uniform(-0.03, 0.03),
            0.2 - 0.03 * k,
            0.06 + 0.012 * k,
            0.05,
        )
    p.poly(
        (86, 62, 66), x - 0.42, level + 0.03, x - 0.07, 0.24, x + 0.07, 0.24, x + 0.42, level + 0.03
    )
    p.poly((246, 150, 62), x - 0.07, 0.24, x + 0.07, 0.24, x + 0.03, 0.4, x, 0.32, x - 0.03, 0.46)
    p.gradient((84, 66, 68), (54, 44, 50), level, 1)
    for x, y, s in p.scatter(p.props, level + 0.05, 0.97):
        w = 0.05 + 0.07 * s
        p.poly((250, 158, 66), x - w, y, x - w / 3, y - 0.014, x + w, y + 0.006, x, y + 0.016)
        p.poly((112, 90, 90), x + w, y, x + w * 1.3, y - w * 0.7, x + w * 1.8, y)


def city(p: SceneCanvas) -> None:
    rng, street = p.rng, p.rng.uniform(0.66, 0.76)
    p.gradient((170, 196, 222), (236, 226, 220), 0, street)
    for tone, low, count in (((168, 180, 198), 0.2, 7), ((132, 138, 162), 0.34, 5 + p.props // 4)):
        for k in range(count):
            x, w, top = (
                k / count + rng.uniform(-0.02, 0.02),
                1.1 / count,
                low + rng.uniform(-0.1, 0.2),
            )
            p.box(shade(tone, rng.integer(-12, 12)), x, top, x + w, street)
            for row in range(6):
                for column in range(3):
                    lit = rng.random() < 0.3 + 0.05 * p.props
                    wx, wy = x + w * (0.16 + 0.27 * column), top + 0.03 + 0.075 * row
                    if lit and wy < street - 0.05:
                        p.box((250, 232, 170), wx, wy, wx + w * 0.14, wy + 0.034)
    p.box((196, 192, 188), 0, street, 1, street + 0.06)
    p.gradient((112, 114, 122), (88, 90, 100), street + 0.06, 1)
    for k in range(5):
        x, top, bottom = k * 0.24, street + 0.17, street + 0.19
        p.poly((232, 226, 206), x, top, x + 0.12, top, x + 0.11, bottom, x - 0.01, bottom)
    for x, _, _ in p.scatter(p.props // 2, 0, 1):
        p.box((70, 74, 84), x, street - 0.26, x + 0.012, street + 0.03)
        p.oval((252, 240, 196), x + 0.006, street - 0.27, 0.022)


def room(p: SceneCanvas) -> None:
    rng, floor = p.rng, p.rng.uniform(0.64, 0.74)
    wall = rng.choice([(214, 200, 180), (186, 202, 196), (206, 188, 192), (190, 194, 212)])
    p.gradient(shade(wall, 14), wall, 0, floor)
    for k in range(10):
        p.box(shade(wall, -7), k * 0.1, 0, k * 0.1 + 0.03, floor)
    for px, py, s in p.scatter(p.props // 2, 0.12, 0.4):
        w = 0.04 + 0.04 * s
        p.box((122, 90, 66), px - w, py - w * 1.2, px + w, py + w * 1.2)
        tone = rng.choice([(226, 190, 140), (150, 176, 168), (196, 140, 120)])
        p.box(tone, px - w * 0.8, py - w, px + w * 0.8, py + w)
    x = rng.uniform(0.06, 0.6)
    p.box((240, 234, 222), x, 0.08, x + 0.32, 0.46)
    p.gradient((150, 196, 228), (216, 234, 238), 0.1, 0.44, x + 0.02, x + 0.3)
    p.box((240, 234, 222), x + 0.15, 0.1, x + 0.17, 0.44)
    p.box((236, 228, 214), 0, floor - 0.025, 1, floor)
    p.gradient((176, 132, 92), (146, 104, 70), floor, 1)
    for k in range(5):
        y = floor + (k + 1) * (1 - floor) / 5
        p.box((130, 92, 62), 0, y, 1, y + 0.006)
    rug = rng.choice([(176, 92, 88), (92, 124, 140), (150, 140, 96)])
    p.oval(rug, rng.uniform(0.3, 0.7), 0.9, 0.36, 0.09)
    for px, _, s in p.scatter(p.props // 3, 0, 1):
        p.box((172, 104, 80), px - 0.03, floor - 0.02, px + 0.03, floor + 0.06)
        p.oval((98, 146, 98), px, floor - 0.08, 0.05, 0.08 + 0.03 * s)


def reef(p: SceneCanvas) -> None:
    rng = p.rng
    p.gradient((92, 186, 208), (26, 78, 128), 0, 1)
    for _ in range(4):
        x = rng.random()
        p.poly((112, 198, 214), x, 0, x + 0.08, 0, x - 0.1, 0.6, x - 0.26, 0.6)
    p.hills((38, 96, 138), 0.8, 0.2)
    p.hills((206, 190, 146), 0.92, 0.08)
    for x, y, s in p.scatter(p.props * 2, 0.88, 1):
        h = 0.1 + 0.16 * s
        tone = rng.choice([(226, 112, 120), (236, 168, 92), (90, 160, 120), (170, 110, 170)])
        for lean in (-0.5, 0.0, 0.5):
            p.line(tone, 0.02, x, y, x + lean * h * 0.7, y - h)
            p.oval(tone, x + lean * h * 0.7, y - h, 0.016)
    p.dots([(170, 220, 232)], p.props * 2, 0.05, 0.8, 0.012)


def space(p: SceneCanvas) -> None:
    rng = p.rng
    p.gradient((22, 18, 48), (58, 38, 88), 0, 1)
    for k in range(6):
        p.oval(shade((58, 40, 92), 5 * k), 0.1 + 0.16 * k, rng.uniform(0.3, 0.6), 0.16, 0.06)
    p.dots([(255, 250, 232), (196, 210, 255), (255, 216, 196)], p.props * 9, 0, 1, 0.006)
    tone = rng.choice([(222, 150, 104), (128, 176, 196), (190, 140, 190)])
    x, y, r = rng.random(), rng.uniform(0.1, 0.4), rng.uniform(0.07, 0.15)
    p.oval(shade(tone, -40), x, y, r)
    p.oval(tone, x - r * 0.12, y - r * 0.12, r * 0.86)
    left, right = (x - r * 1.7, y + r * 0.35), (x + r * 1.7, y - r * 0.35)
    p.poly((230, 214, 190), *left, x, y + r * 0.1, *right, x, y + r * 0.25)
    p.hills((128, 122, 140), 0.88, 0.08)
    for x, y, s in p.scatter(p.props, 0.84, 0.98):
        p.oval((98, 92, 112), x, y, 0.03 + 0.03 * s, 0.012 + 0.01 * s)


def garden_wall(p: SceneCanvas) -> None:
    rng, foot = p.rng, p.rng.uniform(0.76, 0.84)
    p.box((176, 108, 86), 0, 0, 1, foot)
    for row in range(11):
        for k in range(-1, 7):
            x, y = (k + 0.5 * (row % 2)) / 6, row * foot / 11
            p.box(
                shade((194, 122, 96), rng.integer(-16, 14)), x, y, x + 0.155, y + foot / 11 - 0.01
            )
    for x, y, s in p.scatter(p.props * 3, 0, foot):
        tone = rng.choice([(96, 144, 84), (122, 166, 92), (76, 122, 76)])
        p.oval(tone, x, y, 0.02 + 0.025 * s, 0.018 + 0.02 * s)
    p.gradient((150, 148, 144), (120, 118, 116), foot, 1)
    for k in range(6):
        p.line((104, 102, 102), 0.006, k * 0.2, foot, k * 0.26 - 0.12, 1)


def playground(p: SceneCanvas) -> None:
    rng, level = p.rng, p.rng.uniform(0.5, 0.6)
    p.gradient((142, 200, 226), (226, 240, 236), 0, level)
    p.clouds((250, 252, 252), 0.05, 0.2)
    for k in range(9):
        p.round_tree((116, 170, 108), (120, 96, 76), k / 8, level + 0.02, rng.uniform(0.18, 0.26))
    p.gradient((214, 128, 104), (190, 100, 84), level, 1)
    for x, y, s in p.scatter(p.props + 1, level + 0.06, 0.94):
        tone = rng.choice([(240, 208, 92), (96, 168, 190), (240, 238, 228), (130, 180, 110)])
        w = 0.05 + 0.08 * s
        p.oval(tone, x, y, w, w * 0.4)
        p.oval((204, 116, 94), x, y, w * 0.7, w * 0.26)
    for x, _, _ in p.scatter(p.props // 2, 0, 1):
        p.line((96, 104, 130), 0.014, x, level + 0.06, x + 0.06, level - 0.2)
        p.line((96, 104, 130), 0.014, x + 0.12, level + 0.06, x + 0.06, level - 0.2)


# Each scene: its words in a caption, and the function that paints it.
Scene = tuple[str, Callable[[SceneCanvas], None]]
SCENES: dict[str, Scene] = {
    "meadow": ("in a meadow", meadow),
    "sea": ("over a calm sea", sea),
    "desert": ("in the desert", desert),
    "forest": ("in a forest", forest),
    "snow": ("in the snow", snow),
    "night": ("under a night sky", night),
    "farmland": ("on farmland in autumn", farmland),
    "volcano": ("near a volcano", volcano),
    "city": ("in a city street", city),
    "room": ("in a room", room),
    "reef": ("above a coral reef", reef),
    "space": ("in outer space", space),
    "wall": ("before a brick wall", garden_wall),
    "playground": ("on a playground", playground),
}
