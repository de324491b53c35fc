"""Paint a shape: polygons to pixels, a texture, a soft relief, then colors.

Libraries rasterise in floating point, and single pixels move between versions and compilers. Here a
pixel is inside if its centre is, by integer division, which is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from .rng import direction
from .shapes import ROLES, ObjectShape

COLOURS = {
    "red": (205, 58, 52),
    "orange": (236, 136, 48),
    "yellow": (240, 206, 74),
    "green": (88, 158, 78),
    "teal": (46, 152, 150),
    "blue": (62, 108, 196),
    "purple": (132, 86, 170),
    "pink": (234, 132, 168),
    "brown": (138, 92, 62),
    "grey": (144, 146, 154),
}
TEXTURES = ("plain", "striped", "dotted", "checked")
STRETCHES = {"slim": (0.74, 1.0), "regular": (1.0, 1.0), "wide": (1.0, 0.74)}  # width, height
INK, WHITE = (44, 40, 48), (246, 243, 236)
SHADES, NEUTRAL = 32, 14  # levels of light, and the one that does not change a color
MAIN, INK_ROLE, PATTERN = ROLES.index("main"), ROLES.index("ink"), ROLES.index("pattern")
SUBPIXELS = 16  # corners are on a grid of this many steps per pixel

RGB = tuple[int, int, int]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Appearance:
    """Colors and texture of an object."""

    colour: RGB
    accent: RGB
    texture: str = "plain"


@dataclass(frozen=True)
class Pose:
    """Position and size as fractions of the image's side; `half` is half of the longer side."""

    x: float
    y: float
    half: float
    stretch: tuple[float, float] = (1.0, 1.0)
    turn: int = 0  # half degrees
    flipped: bool = False


def paint(
    canvas: Image.Image, shape: ObjectShape, subclass: str, pose: Pose, look: Appearance, flat: bool
) -> tuple[tuple[int, int], Image.Image]:
    """Paint an object and return its silhouette: position on the canvas, and a mask of 0 and 255.

    `flat` paints outlines instead of a relief.
    """
    side = canvas.width
    points, polygons = shape.outline(subclass)
    x, y, half = _place(points, pose, side)
    margin = 3 + half // 8
    left, top = int(x.min()) // SUBPIXELS - margin, int(y.min()) // SUBPIXELS - margin
    centre = int(pose.x * side) - left, int(pose.y * side) - top
    right, bottom = int(x.max()) // SUBPIXELS, int(y.max()) // SUBPIXELS
    size = right - left + margin + 2, bottom - top + margin + 2
    roles = _fill(x - left * SUBPIXELS, y - top * SUBPIXELS, polygons, size)
    silhouette = Image.fromarray(_OPAQUE[roles])
    edges = _edges(roles, 1 + half // 64) & (roles > 0) if flat else None
    if look.texture != "plain":
        main = roles == MAIN
        pattern = _pattern(look.texture, size, centre, pose.turn, half)
        roles[main] += (PATTERN - MAIN) * pattern[main]
    if edges is not None:
        shade = np.full(roles.shape, NEUTRAL, np.uint8)
        roles[edges] = INK_ROLE
    else:
        shade = _relief(silhouette, centre[1], half)
    indexed = Image.fromarray(roles * np.uint8(SHADES) + shade)
    indexed.putpalette(_palette(look.colour, look.accent))
    canvas.paste(indexed.convert("RGB"), (left, top), silhouette)
    return (left, top), silhouette


_OPAQUE = np.array([0] + [255] * 255, np.uint8)


def scanlines(
    x: Ints, y: Ints, ends: Sequence[int], width: int, height: int
) -> tuple[list[int], list[int], list[int]]:
    """Return runs of covered pixels: start and stop in the flat image, and the polygon's number.

    Corners are in steps of 1/16 pixel; polygon k has the corners up to `ends[k]`. Where a polygon
    crosses itself, the even-odd rule holds.
    """
    lasts = np.asarray(ends, np.int64) - 1
    firsts = np.concatenate([[0], lasts[:-1] + 1])
    following = np.arange(1, len(x) + 1)
    following[lasts] = firsts
    owner = np.repeat(np.arange(len(lasts)), lasts - firsts + 1)
    # Direct every edge downwards.
    x1, y1 = x[following], y[following]
    down = y < y1
    x0, x1 = np.where(down, x, x1), np.where(down, x1, x)
    y0, y1 = np.where(down, y, y1), np.where(down, y1, y)
    # An edge crosses the rows whose centre line, 16 r + 8, is in y0 <= line < y1.
    top, bottom = (_clip((ends + SUBPIXELS // 2 - 1) // SUBPIXELS, height) for ends in (y0, y1))
    rows = bottom - top
    edge = np.repeat(np.arange(len(rows)), rows)
    row = np.arange(len(edge)) - (np.cumsum(rows) - rows - top)[edge]
    dy = (y1 - y0)[edge]
    # The first pixel whose centre is not left of the crossing: ceil((crossing - 8) / 16).
    centre_line = SUBPIXELS * row + SUBPIXELS // 2
    crossing = dy * (x0[edge] - SUBPIXELS // 2) + (centre_line - y0[edge]) * (x1 - x0)[edge]
    column = _clip(-(-crossing // (SUBPIXELS * dy)), width)
    keys = (owner[edge] * height + row) * (width + 1) + column
    keys.sort()
    scanline, start = np.divmod(keys[::2], width + 1)
    stop = keys[1::2] - scanline * (width + 1)
    visible = np.flatnonzero(stop > start)
    scanline, start, stop = scanline[visible], start[visible], stop[visible]
    owner, row = np.divmod(scanline, height)
    return (row * width + start).tolist(), (row * width + stop).tolist(), owner.tolist()


def _clip(values: Ints, limit: int) -> Ints:
    return np.minimum(np.maximum(values, 0), limit)  # np.clip is slow on small arrays


def _fill(x: Ints, y: Ints, polygons: list[tuple[int, int]], size: tuple[int, int]) -> Bytes:
    """Return roles (H, W); later polygons cover earlier ones."""
    width, height = size
    starts, stops, owners = scanlines(x, y, [end for _, end in polygons], width, height)
    rows = [bytes([role]) * width for role, _ in polygons]
    pixels = bytearray(width * height)
    for start, stop, owner in zip(starts, stops, owners, strict=True):
        pixels[start:stop] = rows[owner][: stop - start]
    return np.frombuffer(pixels, np.uint8).reshape(height, width)


def _place(points: npt.NDArray[np.float64], pose: Pose, side: int) -> tuple[Ints, Ints, int]:
    """Return corners in steps of 1/16 pixel, and half of the size in pixels.

    Products and sums are separate: fused, they would round differently.
    """
    half = pose.half * side
    cos, sin = direction(pose.turn)
    u = points[:, 0] * (pose.stretch[0] * half * (1 - 2 * pose.flipped))
    v = points[:, 1] * (pose.stretch[1] * half)
    x = np.floor((u * cos - v * sin + pose.x * side) * SUBPIXELS + 0.5)
    y = np.floor((u * sin + v * cos + pose.y * side) * SUBPIXELS + 0.5)
    return x.astype(np.int64), y.astype(np.int64), max(int(half), 4)


def _pattern(
    texture: str, size: tuple[int, int], centre: tuple[int, int], turn: int, half: int
) -> Bytes:
    """Return a texture (H, W) of 0 and 1, aligned with the object and scaled by its size."""
    cos, sin = (round(value * 256) for value in direction(turn + 60))
    across = np.arange(size[0], dtype=np.int32) - centre[0]
    down = np.arange(size[1], dtype=np.int32)[:, None] - centre[1]
    period = max(half * 256 * 2 // 9, 4 * 256)
    u, v = across * cos + down * sin, down * cos - across * sin
    if texture == "striped":
        pattern = (u // (period // 2)) & 1
    elif texture == "checked":
        pattern = (u // (period * 3 // 4) + v // (period * 3 // 4)) & 1
    else:
        u, v = (u % period - period // 2) >> 4, (v % period - period // 2) >> 4
        pattern = (u * u + v * v < (period * period >> 8) // 9).astype(np.int32)
    return pattern.astype(np.uint8)


def _edges(roles: Bytes, width: int) -> npt.NDArray[np.bool_]:
    """Return where one polygon meets another or the background."""
    edge = np.zeros(roles.shape, bool)
    for d in range(1, width + 1):
        edge[d:] |= roles[d:] != roles[:-d]
        edge[:-d] |= roles[d:] != roles[:-d]
        edge[:, d:] |= roles[:, d:] != roles[:, :-d]
        edge[:, :-d] |= roles[:, d:] != roles[:, :-d]
    return edge


def _relief(silhouette: Image.Image, centre: int, half: int) -> Bytes:
    """Return shades for light from above left: the slope of the blurred silhouette."""
    step = max(half // 9, 1)
    height = np.asarray(silhouette.filter(ImageFilter.BoxBlur(max(half // 6, 1))), np.int16)
    slope = np.zeros(height.shape, np.int16)
    difference = height[2 * step :, 2 * step :] - height[: -2 * step, : -2 * step]
    slope[step:-step, step:-step] = difference
    # The upper half of the body is lighter than the lower half.
    fall = (np.arange(height.shape[0], dtype=np.int16)[:, None] - centre) * 4 // half
    return np.asarray(np.clip((slope >> 4) + NEUTRAL - fall, 0, SHADES - 1), np.uint8)


# How far each shade moves a color, in percent, and towards what: a cool dark or a warm light.
_SHADE = np.arange(SHADES, dtype=np.int32)[:, None]
_IS_DARK = _SHADE < NEUTRAL
_PERCENT = np.where(_IS_DARK, (NEUTRAL - _SHADE) * 56 // NEUTRAL, (_SHADE - NEUTRAL) * 3)
_LIGHT = np.where(_IS_DARK, np.array((16, 14, 34), np.int32), np.array((255, 252, 240), np.int32))


@lru_cache(4096)
def _palette(colour: RGB, accent: RGB) -> bytes:
    dark, light = _mix(colour, INK, 38), _mix(colour, WHITE, 50)
    is_bright = colour[0] * 3 + colour[1] * 6 + colour[2] > 1500
    pattern = _mix(colour, INK, 34) if is_bright else _mix(colour, WHITE, 46)
    tones = np.array(((0, 0, 0), colour, dark, light, accent, INK, WHITE, pattern), np.int32)
    shaded = (tones[:, None] * (100 - _PERCENT) + _LIGHT * _PERCENT) // 100
    return bytes(shaded.astype(np.uint8).tobytes())


def _mix(a: RGB, b: RGB, percent: int) -> RGB:
    red, green, blue = (
        (x * (100 - percent) + y * percent) // 100 for x, y in zip(a, b, strict=True)
    )
    return red, green, blue
