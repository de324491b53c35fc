"""Snow, frost, fog and brightness.

ImageNet-C's frost overlays photographs of frozen windows, which we may not redistribute. Here the
ice is drawn: fern-like crystals with the mean colors and deviations of those five photographs.
Weights and random crops are the published ones. Errors under this frost cannot be compared with
published ones.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from .blur import as_written, blur_along_line, zoom
from .registry import Array, Bytes, Rng, corruption

GREY = np.array([0.299, 0.587, 0.114], np.float32)
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


@corruption("weather", order=8)
def snow(x: Bytes, severity: int, rng: Rng) -> Array:
    """Add flakes of enlarged, motion-blurred noise to a paler image, once more rotated by 180°."""
    mean, deviation, size, threshold, radius, sigma, weight = (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    )[severity - 1]
    noise = mean + deviation * rng.standard_normal((1, *x.shape[:2]), np.float32)
    flakes = zoom(noise, size)[0]
    flakes = np.clip(np.where(flakes < threshold, 0, flakes), 0, 1)
    flakes = np.floor(255 * flakes).astype(np.float32)
    streaks = blur_along_line(flakes, radius, sigma, rng.uniform(-135, -45))
    layer = as_written(streaks)[..., None]
    pixels = x.astype(np.float32)
    pale = np.maximum(pixels, 1.5 * (pixels @ GREY)[..., None] + 127.5)
    mixed: Array = np.float32(weight) * pixels + np.float32(1 - weight) * pale
    return mixed + layer + layer[::-1, ::-1]


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
    standardized: Array = (result - result.mean()) / result.std()
    return standardized.astype(np.float32)


@corruption("weather", order=10)
def fog(x: Bytes, severity: int, rng: Rng) -> Array:
    """Add a plasma cloud, then scale so that the maximum stays the same."""
    amount, decay = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))[severity - 1]
    height, width = x.shape[:2]
    side = max(2, 1 << (max(height, width) - 1).bit_length())  # 256 for the published 224
    cloud = plasma(side, decay, rng)[:height, :width, None].astype(np.float32)
    brightest = float(x.max()) / 255
    return (x + np.float32(255 * amount) * cloud) * np.float32(brightest / (brightest + amount))


def plasma(side: int, decay: float, rng: Rng) -> npt.NDArray[np.float64]:
    """Return a plasma cloud (side, side) from 0 to 1, periodic, by the diamond-square algorithm.

    Each point of the next finer grid is the mean of its four neighbours plus noise, whose deviation
    falls by `decay` squared from grid to grid.
    """

    def noise() -> npt.NDArray[np.float64]:
        return reach * rng.uniform(-reach, reach, grid.shape)

    grid, reach = np.zeros((1, 1)), 100.0
    while len(grid) < side:
        right, below = np.roll(grid, -1, 1), np.roll(grid, -1, 0)
        centre = (grid + right + below + np.roll(right, -1, 0)) / 4 + noise()  # of squares
        fine = np.empty((2 * len(grid), 2 * len(grid)))
        fine[::2, ::2], fine[1::2, 1::2] = grid, centre
        fine[::2, 1::2] = (grid + right + centre + np.roll(centre, 1, 0)) / 4 + noise()  # diamonds
        fine[1::2, ::2] = (grid + below + centre + np.roll(centre, 1, 1)) / 4 + noise()
        grid, reach = fine, reach / decay
    grid -= grid.min()
    return grid / (grid.max() or 1)


@corruption("weather", order=11)
def brightness(x: Bytes, severity: int, rng: Rng) -> Array:
    """Add c to the value of HSV: hue and saturation stay, so all channels grow by one factor."""
    c = (0.1, 0.2, 0.3, 0.4, 0.5)[severity - 1]
    value = x.max(2, keepdims=True).astype(np.float32)
    brighter = np.minimum(value + np.float32(255 * c), 255)
    # Black has no hue: it becomes grey.
    scaled: Array = np.where(value > 0, x * (brighter / np.maximum(value, 1)), brighter)
    return scaled + np.float32(1e-3)
