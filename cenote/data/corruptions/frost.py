"""Frost: ice over the image.

ImageNet-C overlays photographs of frozen windows, which we may not redistribute. Here the ice is
drawn: fern-like crystals with the mean colors and deviations of those five photographs. Weights and
random crops are the published ones. Errors under this frost cannot be compared with published ones.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from .blur import blur_along_line
from .registry import Array, Bytes, Rng, corruption
from .weather import plasma

SIDE = 512  # of a texture; for larger images it is repeated, mirrored
ANGLES = 18  # directions of needles, over 180 degrees
# Mean color, deviation, and number of crystals of each texture.
TEXTURES: tuple[tuple[tuple[int, int, int], tuple[int, int, int], int], ...] = (
    ((78, 149, 166), (27, 16, 15), 160),
    ((201, 205, 214), (21, 22, 23), 90),
    ((201, 205, 214), (21, 22, 23), 120),
    ((138, 153, 165), (28, 28, 30), 420),
    ((112, 123, 135), (44, 43, 42), 60),
)


@corruption("weather", order=9)
def frost(x: Bytes, severity: int, rng: Rng) -> Array:
    """Return a weighted sum of the image and a random crop of one of five textures."""
    weight, ice = ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))[severity - 1]
    texture = ice_texture(int(rng.integers(len(TEXTURES))))
    # The crop is inside of the texture if the image is smaller; otherwise it starts anywhere.
    limits = [SIDE - side if side < SIDE else 2 * SIDE for side in x.shape[:2]]
    top, left = (int(rng.integers(limit)) for limit in limits)
    crop = texture[_mirrored(top, x.shape[0])][:, _mirrored(left, x.shape[1])]
    return np.float32(weight) * x + np.float32(ice) * crop


def _mirrored(start: int, count: int) -> npt.NDArray[np.int64]:
    """Return positions in a texture that is repeated, every second time mirrored."""
    position = np.arange(start, start + count) % (2 * SIDE)
    return np.where(position < SIDE, position, 2 * SIDE - 1 - position)


@cache
def ice_texture(number: int) -> Bytes:
    """Return texture (SIDE, SIDE, 3), always the same."""
    color, deviation, count = TEXTURES[number]
    grey = crystals(count, np.random.default_rng(number))
    texture = np.array(color) + np.array(deviation) * grey[..., None]
    return np.clip(texture, 0, 255).astype(np.uint8)


def crystals(count: int, rng: Rng) -> npt.NDArray[np.float32]:
    """Return (SIDE, SIDE) with mean 0 and deviation 1: needles along the spine of crystals."""
    roots, turns = rng.random((count, 2)) * SIDE, rng.random(count) * 2 * np.pi
    tones = rng.standard_normal(count)
    y, x = np.mgrid[:SIDE, :SIDE].astype(np.float32)

    def relative_to(k: int | Array, x: Array, y: Array) -> tuple[Array, Array, Array]:
        """Return the position along and across crystal k, and the distance to it.

        A crystal grows from its root in one direction.
        """
        dx, dy, cos, sin = x - roots[k, 0], y - roots[k, 1], np.cos(turns[k]), np.sin(turns[k])
        u, v = cos * dx + sin * dy, cos * dy - sin * dx
        return u, v, np.hypot(np.where(u > 0, u / 3, u), v)

    nearest, owner = np.full((SIDE // 2, SIDE // 2), np.inf), np.zeros((SIDE // 2, SIDE // 2), int)
    for k in range(count):  # at half the resolution, which is enough for the boundaries
        distance = relative_to(k, x[::2, ::2], y[::2, ::2])[2]
        owner[distance < nearest] = k
        nearest = np.minimum(nearest, distance)
    owner = owner.repeat(2, 0).repeat(2, 1)
    along, across, distance = relative_to(owner, x, y)
    barbs = turns[owner] + np.sign(across) * np.radians(35)  # to both sides of the spine
    direction = np.rint(barbs * ANGLES / np.pi).astype(int) % ANGLES
    needles = np.zeros((SIDE, SIDE), np.float32)
    for k in range(ANGLES):
        noise = rng.standard_normal((SIDE, SIDE), np.float32)
        noise = blur_along_line(noise, 8, 6, k * 180 / ANGLES)
        needles[direction == k] = noise[direction == k]
    spine = np.exp(-np.abs(across) / 1.5) * (along > 0)
    gaps = np.clip(distance / (SIDE / np.sqrt(count)), 0, 1.5)  # between the crystals
    clouds = plasma(SIDE, 1.6, rng)
    result = needles / needles.std() + 1.4 * spine - 1.2 * gaps + 0.3 * tones[owner]
    result = result + 1.3 * clouds / clouds.std()
    standardized: npt.NDArray[np.float32] = (result - result.mean()) / result.std()
    return standardized.astype(np.float32)
