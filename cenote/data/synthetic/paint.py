"""A shape becomes pixels: parts as palette indices, a pattern, a soft relief, and colours last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from .rng import direction
from .shapes import ROLES, Shape

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
VARIANTS = {"slim": (0.74, 1.0), "regular": (1.0, 1.0), "wide": (1.0, 0.74)}  # of width and height
INK, WHITE = (44, 40, 48), (246, 243, 236)
SHADES, EVEN = 32, 14  # levels of light, and the one that leaves a colour as it is
MAIN, INK_ROLE, PATTERN = ROLES.index("main"), ROLES.index("ink"), ROLES.index("pattern")

RGB = tuple[int, int, int]


@dataclass(frozen=True)
class Look:
    """What an object is painted with."""

    colour: RGB
    accent: RGB
    texture: str = "plain"


@dataclass(frozen=True)
class Pose:
    """Where an object is, in shares of the image's side; `half` is half of its longer side."""

    x: float
    y: float
    half: float
    stretch: tuple[float, float] = (1.0, 1.0)
    turn: int = 0  # half degrees
    flipped: bool = False


def paint(
    canvas: Image.Image, shape: Shape, subclass: str, pose: Pose, look: Look, flat: bool
) -> tuple[tuple[int, int], Image.Image]:
    """Paint it and give its silhouette: where on the canvas, and a mask of 0 and 255. `flat`: outlines, no relief."""
    side = canvas.width
    points, parts = shape.outlines(subclass)
    x, y, half = _placed(points, pose, side)
    margin = 3 + half // 8
    left, top = int(x.min()) // FINE - margin, int(y.min()) // FINE - margin
    middle = int(pose.x * side) - left, int(pose.y * side) - top
    size = (int(x.max()) // FINE - left + margin + 2, int(y.max()) // FINE - top + margin + 2)
    roles = _filled(x - left * FINE, y - top * FINE, parts, size)
    silhouette = Image.fromarray(_SOLID[roles])
    edges = _edges(roles, 1 + half // 64) & (roles > 0) if flat else None
    if look.texture != "plain":
        main = roles == MAIN
        roles[main] += (PATTERN - MAIN) * _pattern(look.texture, size, middle, pose.turn, half)[
            main
        ]
    if edges is not None:
        shade = np.full(roles.shape, EVEN, np.uint8)
        roles[edges] = INK_ROLE
    else:
        shade = _relief(silhouette, middle[1], half)
    indexed = Image.fromarray(roles * np.uint8(SHADES) + shade)
    indexed.putpalette(_palette(look.colour, look.accent))
    canvas.paste(indexed.convert("RGB"), (left, top), silhouette)
    return (left, top), silhouette


_SOLID = np.array([0] + [255] * 255, np.uint8)


def _filled(
    x: Ints, y: Ints, parts: list[tuple[int, int]], size: tuple[int, int]
) -> npt.NDArray[np.uint8]:
    """(H, W) of roles; later parts over earlier ones."""
    width, height = size
    starts, stops, owners = spans(x, y, [end for _, end in parts], width, height)
    rows = [bytes([role]) * width for role, _ in parts]
    pixels = bytearray(width * height)
    for start, stop, owner in zip(starts, stops, owners, strict=True):
        pixels[start:stop] = rows[owner][: stop - start]
    return np.frombuffer(pixels, np.uint8).reshape(height, width)


def _placed(points: npt.NDArray[np.float64], pose: Pose, side: int) -> tuple[Ints, Ints, int]:
    """Steps of 1/16 pixel, and half the size in pixels. Products and sums stay apart: fused, they round differently."""
    half = pose.half * side
    cos, sin = direction(pose.turn)
    u = points[:, 0] * (pose.stretch[0] * half * (-1 if pose.flipped else 1))
    v = points[:, 1] * (pose.stretch[1] * half)
    x = np.floor((u * cos - v * sin + pose.x * side) * FINE + 0.5)
    y = np.floor((u * sin + v * cos + pose.y * side) * FINE + 0.5)
    return x.astype(np.int64), y.astype(np.int64), max(int(half), 4)


def _pattern(
    texture: str, size: tuple[int, int], middle: tuple[int, int], turn: int, half: int
) -> npt.NDArray[np.uint8]:
    """(H, W) of 0 and 1, anchored in the object's middle and turned with it; the period follows its size."""
    cos, sin = (round(value * 256) for value in direction(turn + 60))
    across = np.arange(size[0], dtype=np.int32) - middle[0]
    down = np.arange(size[1], dtype=np.int32)[:, None] - middle[1]
    period = max(half * 256 * 2 // 9, 4 * 256)
    u, v = across * cos + down * sin, down * cos - across * sin
    if texture == "striped":
        found = (u // (period // 2)) & 1
    elif texture == "checked":
        found = (u // (period * 3 // 4) + v // (period * 3 // 4)) & 1
    else:
        u, v = (u % period - period // 2) >> 4, (v % period - period // 2) >> 4
        found = (u * u + v * v < (period * period >> 8) // 9).astype(np.int32)
    return found.astype(np.uint8)


def _edges(roles: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.bool_]:
    """Where one part meets another, or nothing."""
    edge = np.zeros(roles.shape, bool)
    for d in range(1, width + 1):
        edge[d:] |= roles[d:] != roles[:-d]
        edge[:-d] |= roles[d:] != roles[:-d]
        edge[:, d:] |= roles[:, d:] != roles[:, :-d]
        edge[:, :-d] |= roles[:, d:] != roles[:, :-d]
    return edge


def _relief(silhouette: Image.Image, middle: int, half: int) -> npt.NDArray[np.uint8]:
    """Light from above on the left over a body that is thick in the middle: the slope of the blurred silhouette."""
    step = max(half // 9, 1)
    height = np.asarray(silhouette.filter(ImageFilter.BoxBlur(max(half // 6, 1))), np.int16)
    slope = np.zeros(height.shape, np.int16)
    slope[step:-step, step:-step] = (
        height[2 * step :, 2 * step :] - height[: -2 * step, : -2 * step]
    )
    # The body as a whole is lighter above than below.
    fall = (np.arange(height.shape[0], dtype=np.int16)[:, None] - middle) * 4 // half
    return np.asarray(np.clip((slope >> 4) + EVEN - fall, 0, SHADES - 1), np.uint8)


@lru_cache(4096)
def _palette(colour: RGB, accent: RGB) -> bytes:
    dark, light = _mix(colour, INK, 38), _mix(colour, WHITE, 50)
    bright = colour[0] * 3 + colour[1] * 6 + colour[2]
    pattern = _mix(colour, INK, 34) if bright > 1500 else _mix(colour, WHITE, 46)
    tones = np.array(((0, 0, 0), colour, dark, light, accent, INK, WHITE, pattern), np.int32)[
        :, None
    ]
    shaded = (tones * (100 - _PERCENT) + _LIGHT * _PERCENT) // 100
    return bytes(shaded.astype(np.uint8).tobytes())


# How far each shade moves a colour, and towards what: a cool dark below the even one, a warm light above it.
_SHADE = np.arange(SHADES, dtype=np.int32)[:, None]
_PERCENT = np.where(_SHADE < EVEN, (EVEN - _SHADE) * 56 // EVEN, (_SHADE - EVEN) * 3)
_LIGHT = np.where(
    _SHADE < EVEN, np.array((16, 14, 34), np.int32), np.array((255, 252, 240), np.int32)
)


def _mix(one: RGB, other: RGB, percent: int) -> RGB:
    r, g, b = ((x * (100 - percent) + y * percent) // 100 for x, y in zip(one, other, strict=True))
    return r, g, b


FINE = 16  # corners lie on a grid of this many steps a pixel

Ints = npt.NDArray[np.int64]


def spans(
    x: Ints, y: Ints, ends: Sequence[int], width: int, height: int
) -> tuple[list[int], list[int], list[int]]:
    """Runs of covered pixels, polygon after polygon: where each starts and stops in the flat image, and whose it is.

    Corners come in steps of 1/16 pixel; polygon k has those before `ends[k]`. Where it crosses itself, even-odd holds.
    """
    lasts = np.asarray(ends, np.int64) - 1
    firsts = np.concatenate([[0], lasts[:-1] + 1])
    following = np.arange(1, len(x) + 1)
    following[lasts] = firsts
    owner = np.repeat(np.arange(len(lasts)), lasts - firsts + 1)
    # Every edge downwards.
    x1, y1 = x[following], y[following]
    down = y < y1
    x0, y0, x1, y1 = (
        np.where(down, x, x1),
        np.where(down, y, y1),
        np.where(down, x1, x),
        np.where(down, y1, y),
    )
    # An edge crosses the rows whose centre line, 16 r + 8, lies in y0 <= line < y1.
    top, bottom = (_within((edge + FINE // 2 - 1) // FINE, height) for edge in (y0, y1))
    rows = bottom - top
    edge = np.repeat(np.arange(len(rows)), rows)
    row = np.arange(len(edge)) - (np.cumsum(rows) - rows - top)[edge]
    dy = (y1 - y0)[edge]
    # The first pixel whose centre is not left of the crossing: ceil((crossing - 8) / 16).
    crossing = dy * (x0[edge] - FINE // 2) + (FINE * row + FINE // 2 - y0[edge]) * (x1 - x0)[edge]
    column = _within(-(-crossing // (FINE * dy)), width)
    keys = (owner[edge] * height + row) * (width + 1) + column
    keys.sort()
    line, start = np.divmod(keys[::2], width + 1)
    stop = keys[1::2] - line * (width + 1)
    seen = np.flatnonzero(stop > start)
    line, start, stop = line[seen], start[seen], stop[seen]
    owner, row = np.divmod(line, height)
    return (row * width + start).tolist(), (row * width + stop).tolist(), owner.tolist()


def _within(values: Ints, most: int) -> Ints:
    return np.minimum(np.maximum(values, 0), most)  # np.clip costs more than the rest of a line
