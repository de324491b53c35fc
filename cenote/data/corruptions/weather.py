"""Snow, fog and brightness; frost has a file of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .blur import moved, zoomed

GREY = np.array([0.299, 0.587, 0.114], np.float32)


def snow(x: npt.NDArray[np.uint8], severity: int, draw: np.random.Generator) -> npt.NDArray[Any]:
    """Flakes of enlarged noise, blown along one direction, over a paler image; and again, turned by half a turn."""
    mean, spread, size, threshold, radius, sigma, kept = (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    )[severity - 1]
    noise = mean + spread * draw.standard_normal((1, *x.shape[:2]), np.float32)
    flakes = zoomed(noise, size)[0]
    flakes = np.floor(255 * np.clip(np.where(flakes < threshold, 0, flakes), 0, 1)).astype(
        np.float32
    )
    layer = np.rint(moved(flakes, radius, sigma, draw.uniform(-135, -45)))[..., None]
    pixels = x.astype(np.float32)
    pale = np.maximum(pixels, 1.5 * (pixels @ GREY)[..., None] + 127.5)
    result: npt.NDArray[Any] = (
        np.float32(kept) * pixels + np.float32(1 - kept) * pale + layer + layer[::-1, ::-1]
    )
    return result


def fog(x: npt.NDArray[np.uint8], severity: int, draw: np.random.Generator) -> npt.NDArray[Any]:
    """A plasma cloud over all, scaled so that the brightest stays as bright as it was."""
    amount, decay = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))[severity - 1]
    height, width = x.shape[:2]
    side = max(2, 1 << (max(height, width) - 1).bit_length())  # 256 for the published 224
    cloud = plasma(side, decay, draw)[:height, :width, None].astype(np.float32)
    brightest = float(x.max()) / 255
    return (x + np.float32(255 * amount) * cloud) * np.float32(brightest / (brightest + amount))


def plasma(side: int, decay: float, draw: np.random.Generator) -> npt.NDArray[np.float64]:
    """(side, side), from 0 to 1, by the diamond-square algorithm; its opposite edges fit together.

    Each point of the next finer grid is the mean of its four neighbours plus noise, whose deviation falls by `decay`
    squared from grid to grid.
    """
    grid, reach = np.zeros((1, 1)), 100.0
    while len(grid) < side:
        n = len(grid)
        right, below = np.roll(grid, -1, 1), np.roll(grid, -1, 0)
        middle = (grid + right + below + np.roll(right, -1, 0)) / 4 + _noise(
            n, reach, draw
        )  # squares
        fine = np.empty((2 * n, 2 * n))
        fine[::2, ::2], fine[1::2, 1::2] = grid, middle
        fine[::2, 1::2] = (grid + right + middle + np.roll(middle, 1, 0)) / 4 + _noise(
            n, reach, draw
        )  # diamonds
        fine[1::2, ::2] = (grid + below + middle + np.roll(middle, 1, 1)) / 4 + _noise(
            n, reach, draw
        )
        grid, reach = fine, reach / decay
    grid -= grid.min()
    return grid / (grid.max() or 1)


def _noise(n: int, reach: float, draw: np.random.Generator) -> npt.NDArray[np.float64]:
    return reach * draw.uniform(-reach, reach, (n, n))


def brightness(
    x: npt.NDArray[np.uint8], severity: int, draw: np.random.Generator
) -> npt.NDArray[Any]:
    """The value of HSV grows by c. Hue and saturation stay, so all three channels grow by one factor."""
    c = (0.1, 0.2, 0.3, 0.4, 0.5)[severity - 1]
    value = x.max(2, keepdims=True).astype(np.float32)
    brighter = np.minimum(value + np.float32(255 * c), 255)
    # Black has no hue: it becomes grey.
    scaled: npt.NDArray[Any] = np.where(value > 0, x * (brighter / np.maximum(value, 1)), brighter)
    return scaled + np.float32(1e-3)
