"""Frost: ice over the image.

ImageNet-C lays photographs of frozen windows over its images; they are not ours to give away. Here the ice is drawn:
fern-like crystals, in the mean colours and deviations of those five photographs. Weights and random crops are the
published ones. An error under this frost is therefore no figure to hold against a published one.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .blur import moved
from .weather import plasma

SIDE = 512  # of a plate of ice; larger images see it repeated, mirrored
ANGLES = 18  # directions of needles, over half a turn
# Mean colour, deviation, and crystals on a plate.
PLATES: tuple[tuple[tuple[int, int, int], tuple[int, int, int], int], ...] = (
    ((78, 149, 166), (27, 16, 15), 160),
    ((201, 205, 214), (21, 22, 23), 90),
    ((201, 205, 214), (21, 22, 23), 120),
    ((138, 153, 165), (28, 28, 30), 420),
    ((112, 123, 135), (44, 43, 42), 60),
)


def frost(x: npt.NDArray[np.uint8], severity: int, draw: np.random.Generator) -> npt.NDArray[Any]:
    """A weighted sum of the image and a random part of one of five plates."""
    kept, ice = ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))[severity - 1]
    texture = plate(int(draw.integers(len(PLATES))))
    height, width = x.shape[:2]
    # Inside of the plate where the image is smaller; a larger one begins anywhere.
    top, left = (
        draw.integers(SIDE - side if side < SIDE else 2 * SIDE) for side in (height, width)
    )
    part = texture[_mirrored(int(top), height)][:, _mirrored(int(left), width)]
    return np.float32(kept) * x + np.float32(ice) * part


def _mirrored(start: int, count: int) -> npt.NDArray[np.int64]:
    """Places of a plate that is laid out again and again, every other time mirrored."""
    place = np.arange(start, start + count) % (2 * SIDE)
    return np.where(place < SIDE, place, 2 * SIDE - 1 - place)


@cache
def plate(number: int) -> npt.NDArray[np.uint8]:
    """(SIDE, SIDE, 3), always the same."""
    colour, deviation, count = PLATES[number]
    grey = crystals(count, np.random.default_rng(number))
    return np.clip(np.array(colour) + np.array(deviation) * grey[..., None], 0, 255).astype(
        np.uint8
    )


def crystals(count: int, draw: np.random.Generator) -> npt.NDArray[np.float32]:
    """(SIDE, SIDE) of mean 0 and deviation 1: needles that leave the spine of the nearest crystal, as in a fern."""
    roots, turns, tones = (
        draw.random((count, 2)) * SIDE,
        draw.random(count) * 2 * np.pi,
        draw.standard_normal(count),
    )
    y, x = np.mgrid[:SIDE, :SIDE].astype(np.float32)

    def seen_from(k: Any, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], ...]:
        """Along the axis of crystal k, across it, and how far away; it grows from its root in one direction."""
        dx, dy, cos, sin = x - roots[k, 0], y - roots[k, 1], np.cos(turns[k]), np.sin(turns[k])
        u, v = cos * dx + sin * dy, cos * dy - sin * dx
        return u, v, np.hypot(np.where(u > 0, u / 3, u), v)

    nearest, owner = np.full((SIDE // 2, SIDE // 2), np.inf), np.zeros((SIDE // 2, SIDE // 2), int)
    for k in range(
        count
    ):  # at half the resolution: where one crystal meets another, two pixels do not matter
        distance = seen_from(k, x[::2, ::2], y[::2, ::2])[2]
        owner[distance < nearest] = k
        nearest = np.minimum(nearest, distance)
    owner = owner.repeat(2, 0).repeat(2, 1)
    along, off, distance = seen_from(owner, x, y)
    barbs = turns[owner] + np.sign(off) * np.radians(35)  # to both sides of the spine
    direction = np.rint(barbs * ANGLES / np.pi).astype(int) % ANGLES
    needles = np.zeros((SIDE, SIDE), np.float32)
    for k in range(ANGLES):
        noise = moved(draw.standard_normal((SIDE, SIDE), np.float32), 8, 6, k * 180 / ANGLES)
        needles[direction == k] = noise[direction == k]
    spine = np.exp(-np.abs(off) / 1.5) * (along > 0)
    dark = np.clip(distance / (SIDE / np.sqrt(count)), 0, 1.5)  # between the crystals
    clouds = plasma(SIDE, 1.6, draw)
    result = (
        needles / needles.std()
        + 1.4 * spine
        - 1.2 * dark
        + 0.3 * tones[owner]
        + 1.3 * clouds / clouds.std()
    )
    found: npt.NDArray[np.float32] = ((result - result.mean()) / result.std()).astype(np.float32)
    return found
