"""Domains: the same scene as a photograph, cartoon, sketch, old print, at dusk, or as a mosaic.

Every step is integer arithmetic or a table, so that all machines round equally.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
from PIL import Image

from .rng import PortableRng, noise

Pixels = npt.NDArray[np.uint8]  # (H, W, 3)
FIELDS = 6  # noise fields of each kind; shifts and flips make more of them
_LEVELS = range(256)
SEPIA = np.array(
    [[min(255, 34 + g * 86 // 100), 26 + g * 76 // 100, 18 + g * 58 // 100] for g in _LEVELS],
    np.uint8,
)
POSTER = np.array([min(255, (x + 16) // 32 * 32) for x in _LEVELS], np.uint8)
DUSK = np.array(
    [
        [x * (x + 90) // 760, x * (x + 90) // 680, min(255, x * (x + 120) // 560 + 12)]
        for x in _LEVELS
    ]
)


def photo(pixels: Pixels, rng: PortableRng) -> Pixels:
    """Add uneven light and grain."""
    side = len(pixels)
    light = _field(side, max(side // 4, 2), rng) >> 3
    light = light + (_field(side, 1, rng) >> 4) + (_field(side, max(side // 24, 2), rng) >> 5)
    return _clip(pixels.astype(np.int16) + light[..., None])


def cartoon(pixels: Pixels, rng: PortableRng) -> Pixels:
    """Reduce the tones and strengthen the colors."""
    grey = _grey(pixels)[..., None].astype(np.int16)
    return POSTER[_clip(pixels.astype(np.int16) * 5 // 4 - grey // 4)]


def sketch(pixels: Pixels, rng: PortableRng) -> Pixels:
    """Draw in pencil: lines at edges, hatching in dark areas, on paper."""
    grey, side = _grey(pixels).astype(np.int16), len(pixels)
    edge = np.zeros_like(grey)
    edge[1:] += np.abs(grey[1:] - grey[:-1])
    edge[:, 1:] += np.abs(grey[:, 1:] - grey[:, :-1])
    paper = 246 - (_field(side, 1, rng) >> 5) + (_field(side, max(side // 6, 2), rng) >> 5)
    down, across = np.arange(side)[:, None], np.arange(side)
    hatch = ((down + across) % 4 == 0) & (grey < 120) | ((down - across) % 4 == 0) & (grey < 70)
    tone = paper - (255 - grey) // 6 - 52 * hatch
    lines = tone - np.minimum(edge * 3 // 2, 170)
    return _clip(np.stack([lines, lines - 2, lines - 8], -1))


def sepia(pixels: Pixels, rng: PortableRng) -> Pixels:
    """Make a faded print with dark corners."""
    side = len(pixels)
    grey = _grey(pixels).astype(np.int16) - _corners(side) // 3
    grey += (_field(side, 1, rng) >> 4) + (_field(side, max(side // 5, 2), rng) >> 4)
    return SEPIA[_clip(grey * 7 // 8 + 22)]


def dim(pixels: Pixels, rng: PortableRng) -> Pixels:
    """Darken to dusk, with one spot of light."""
    side = len(pixels)
    top, left = (side // 2 + rng.integer(-side // 4, side // 4) for _ in range(2))
    spot = 255 - _corners(2 * side)[top:, left:][:side, :side] * 5 // 2
    dark = np.stack([DUSK[..., c][pixels[..., c]] for c in range(3)], -1).astype(np.int32)
    lit = dark * (150 + np.maximum(spot, 0)[..., None]) // 300
    return _clip(lit + (_field(side, 1, rng) >> 4)[..., None])


def mosaic(pixels: Pixels, rng: PortableRng) -> Pixels:
    """Make square stones with joints between them."""
    side = len(pixels)
    cell = max(side // 32, 3)
    means = np.asarray(Image.fromarray(pixels).reduce(cell), np.int16)
    small = _clip(means + (_field(side, 1, rng)[: len(means), : len(means)] >> 3)[..., None])
    stones = small.repeat(cell, 0).repeat(cell, 1)[:side, :side]
    joint = np.arange(side) % cell == 0
    stones[joint] = stones[joint] // 4 * 3
    stones[:, joint] = stones[:, joint] // 4 * 3
    return stones


DOMAINS: dict[str, Callable[[Pixels, PortableRng], Pixels]] = {
    domain.__name__: domain for domain in (photo, cartoon, sketch, sepia, dim, mosaic)
}
FLAT_DOMAINS = ("cartoon", "sketch")  # objects have outlines and no relief


def _field(side: int, cell: int, rng: PortableRng) -> npt.NDArray[np.int16]:
    """Return a noise field, shifted or flipped."""
    field = noise(side, cell, rng.below(FIELDS))
    if cell == 1:
        return np.roll(field, rng.below(side), 1)
    return field[:: rng.choice((1, -1)), :: rng.choice((1, -1))]


def _grey(pixels: Pixels) -> Pixels:
    red, green, blue = (pixels[..., k].astype(np.uint16) for k in range(3))
    return np.asarray((red * 77 + green * 150 + blue * 29) >> 8, np.uint8)


@cache
def _corners(side: int) -> npt.NDArray[np.int16]:
    """Return the squared distance to the centre, 0 there and 255 in the corners."""
    d = 2 * np.arange(side, dtype=np.int64) - side + 1
    return ((d[:, None] * d[:, None] + d * d) * 255 // (2 * side * side)).astype(np.int16)


def _clip(values: npt.NDArray[np.signedinteger]) -> Pixels:
    return np.asarray(np.clip(values, 0, 255), np.uint8)
