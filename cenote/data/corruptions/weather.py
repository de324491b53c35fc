"""Snow, fog and brightness; frost is in frost.py."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .blur import blur_along_line, zoom
from .registry import Array, Bytes, Rng, corruption

GREY = np.array([0.299, 0.587, 0.114], np.float32)


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
    layer = np.rint(blur_along_line(flakes, radius, sigma, rng.uniform(-135, -45)))[..., None]
    pixels = x.astype(np.float32)
    pale = np.maximum(pixels, 1.5 * (pixels @ GREY)[..., None] + 127.5)
    mixed: Array = np.float32(weight) * pixels + np.float32(1 - weight) * pale
    return mixed + layer + layer[::-1, ::-1]


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
