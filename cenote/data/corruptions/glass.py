"""Glass blur: pixels take the values of neighbours, between two Gaussian blurs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage


def glass_blur(
    x: npt.NDArray[np.uint8], severity: int, draw: np.random.Generator
) -> npt.NDArray[Any]:
    sigma, reach, rounds = ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))[
        severity - 1
    ]
    pixels = _smooth(x, sigma).astype(np.uint8)
    height, width = x.shape[:2]
    for _ in range(rounds):
        steps = draw.integers(
            -reach, reach, (2, height, width)
        )  # down and across, the upper end excluded
        pixels = pixels.reshape(-1, 3)[sources(steps, reach)].reshape(x.shape)
    return _smooth(pixels, sigma)


def sources(steps: npt.NDArray[np.int64], reach: int) -> npt.NDArray[np.int64]:
    """(H, W): the place whose value each pixel ends up with, counted row by row.

    The published loop goes from the last pixel to the first and means to swap each with the one that is `steps` away.
    Its assignment, between two views of one array, copies instead: pixel <- neighbour. Copying is what made
    ImageNet-C, and copying is done here. A pixel whose neighbour came earlier takes what that one had taken: a chain,
    which is followed for all pixels at once, twice as far each time.
    """
    height, width = steps.shape[1:]
    y, x = np.mgrid[:height, :width]
    inside = (y > reach) & (y <= height - reach) & (x > reach) & (x <= width - reach)
    own = y * width + x
    target = np.where(inside, own + steps[0] * width + steps[1], own)
    target = np.minimum(target, height * width - 1)  # of pixels that are not inside
    came_earlier = inside & inside.reshape(-1)[target] & (target > own)
    # Where the chain ends for now, and where it goes on: a pixel that goes on nowhere points to itself.
    origin, goes_on = target.reshape(-1), np.where(came_earlier, target, own).reshape(-1)
    while True:
        farther = goes_on[goes_on]
        if np.array_equal(farther, goes_on):
            found: npt.NDArray[np.int64] = origin[goes_on].reshape(height, width)
            return found
        goes_on = farther


def _smooth(x: npt.NDArray[np.uint8], sigma: float) -> npt.NDArray[np.float32]:
    blurred: npt.NDArray[np.float32] = ndimage.gaussian_filter(
        x.astype(np.float32), (sigma, sigma, 0), mode="nearest"
    )
    return blurred + np.float32(1e-3)  # a flat area must not fall below its value, to be truncated
