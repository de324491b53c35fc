"""The last step to a picture: one scene as a photograph, a cartoon, a sketch, an old print, at dusk, in mosaic.

Every step is integer arithmetic or a table, so that no machine rounds differently.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
from PIL import Image

from .rng import Dice, noise

Picture = npt.NDArray[np.uint8]  # (H, W, 3)
FIELDS = 6  # noise fields of each kind; shifting them makes many
SEPIA = np.array(
    [[min(255, 34 + g * 86 // 100), 26 + g * 76 // 100, 18 + g * 58 // 100] for g in range(256)],
    np.uint8,
)
FLAT = np.array([min(255, (x + 16) // 32 * 32) for x in range(256)], np.uint8)
DUSK = np.array(
    [
        [x * (x + 90) // 760, x * (x + 90) // 680, min(255, x * (x + 120) // 560 + 12)]
        for x in range(256)
    ]
)


def photo(picture: Picture, dice: Dice) -> Picture:
    """Uneven light and grain."""
    side = len(picture)
    light = _field(side, max(side // 4, 2), dice) >> 3
    light = light + (_field(side, 1, dice) >> 4) + (_field(side, max(side // 24, 2), dice) >> 5)
    return _clipped(picture.astype(np.int16) + light[..., None])


def cartoon(picture: Picture, dice: Dice) -> Picture:
    """Few tones and stronger colours."""
    grey = _grey(picture)[..., None].astype(np.int16)
    wide = picture.astype(np.int16) * 5 // 4 - grey // 4
    return FLAT[_clipped(wide)]


def sketch(picture: Picture, dice: Dice) -> Picture:
    """Pencil: lines where tones meet, hatching where it is dark, on paper."""
    grey, side = _grey(picture).astype(np.int16), len(picture)
    edge = np.zeros_like(grey)
    edge[1:] += np.abs(grey[1:] - grey[:-1])
    edge[:, 1:] += np.abs(grey[:, 1:] - grey[:, :-1])
    paper = 246 - (_field(side, 1, dice) >> 5) + (_field(side, max(side // 6, 2), dice) >> 5)
    down, across = np.arange(side)[:, None], np.arange(side)
    hatch = ((down + across) % 4 == 0) & (grey < 120) | ((down - across) % 4 == 0) & (grey < 70)
    tone = paper - (255 - grey) // 6 - 52 * hatch
    lines = tone - np.minimum(edge * 3 // 2, 170)
    return _clipped(np.stack([lines, lines - 2, lines - 8], -1))


def sepia(picture: Picture, dice: Dice) -> Picture:
    """A faded print with dark corners."""
    side = len(picture)
    grey = _grey(picture).astype(np.int16) - _corners(side) // 3
    grey += (_field(side, 1, dice) >> 4) + (_field(side, max(side // 5, 2), dice) >> 4)
    return SEPIA[_clipped(grey * 7 // 8 + 22)]


def dim(picture: Picture, dice: Dice) -> Picture:
    """Dusk, with one pool of light."""
    side = len(picture)
    shift = (dice.whole(-side // 4, side // 4), dice.whole(-side // 4, side // 4))
    pool = (
        255
        - _corners(2 * side)[side // 2 + shift[0] :, side // 2 + shift[1] :][:side, :side] * 5 // 2
    )
    dark = np.stack([DUSK[..., c][picture[..., c]] for c in range(3)], -1).astype(np.int32)
    lit = dark * (150 + np.maximum(pool, 0)[..., None]) // 300
    return _clipped(lit + (_field(side, 1, dice) >> 4)[..., None])


def mosaic(picture: Picture, dice: Dice) -> Picture:
    """Square stones with joints between them."""
    side = len(picture)
    cell = max(side // 32, 3)
    means = np.asarray(Image.fromarray(picture).reduce(cell), np.int16)
    small = _clipped(means + (_field(side, 1, dice)[: len(means), : len(means)] >> 3)[..., None])
    stones = small.repeat(cell, 0).repeat(cell, 1)[:side, :side]
    joint = np.arange(side) % cell == 0
    stones[joint] = stones[joint] // 4 * 3
    stones[:, joint] = stones[:, joint] // 4 * 3
    return stones


DOMAINS: dict[str, Callable[[Picture, Dice], Picture]] = {
    "photo": photo,
    "cartoon": cartoon,
    "sketch": sketch,
    "sepia": sepia,
    "dim": dim,
    "mosaic": mosaic,
}
DRAWN_FLAT = ("cartoon", "sketch")  # objects with outlines and without relief


def _field(side: int, cell: int, dice: Dice) -> npt.NDArray[np.int16]:
    """A noise field, shifted."""
    found = noise(side, cell, dice.below(FIELDS))
    return (
        np.roll(found, dice.below(side), 1)
        if cell == 1
        else found[:: dice.pick((1, -1)), :: dice.pick((1, -1))]
    )


def _grey(picture: Picture) -> Picture:
    r, g, b = (picture[..., k].astype(np.uint16) for k in range(3))
    return np.asarray((r * 77 + g * 150 + b * 29) >> 8, np.uint8)


@cache
def _corners(side: int) -> npt.NDArray[np.int16]:
    """0 in the middle, 255 in the corners, by the squared distance."""
    d = 2 * np.arange(side, dtype=np.int64) - side + 1
    return ((d[:, None] * d[:, None] + d * d) * 255 // (2 * side * side)).astype(np.int16)


def _clipped(values: npt.NDArray[np.signedinteger]) -> Picture:
    return np.asarray(np.clip(values, 0, 255), np.uint8)
