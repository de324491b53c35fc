"""Glass blur: pixels take the values of neighbours, between two Gaussian blurs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from .registry import Array, Bytes, Rng, corruption

SETTINGS = ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))


@corruption("blur", order=5)
def glass_blur(x: Bytes, severity: int, rng: Rng) -> Array:
    """Blur, copy random neighbours several times, blur again."""
    sigma, reach, rounds = SETTINGS[severity - 1]
    pixels = _smooth(x, sigma).astype(np.uint8)
    for _ in range(rounds):
        # Down and across; the upper end is excluded.
        steps = rng.integers(-reach, reach, (2, *x.shape[:2]))
        pixels = pixels.reshape(-1, 3)[source_pixels(steps, reach)].reshape(x.shape)
    return _smooth(pixels, sigma)


def source_pixels(steps: npt.NDArray[np.int64], reach: int) -> npt.NDArray[np.int64]:
    """Return (H, W) flat positions of the pixel whose value each pixel ends up with.

    The published loop runs from the last pixel to the first and intends to swap each with the one
    that is `steps` away. Its assignment, between two views of one array, copies instead: pixel <-
    neighbour. ImageNet-C was made by copying, so this copies. A pixel whose neighbour was processed
    before takes what that one had taken: a chain, followed for all pixels at once, twice as far in
    each iteration.
    """
    height, width = steps.shape[1:]
    y, x = np.mgrid[:height, :width]
    inside = (y > reach) & (y <= height - reach) & (x > reach) & (x <= width - reach)
    position = y * width + x
    target = np.where(inside, position + steps[0] * width + steps[1], position)
    target = np.minimum(target, height * width - 1)  # for pixels that are not inside
    processed_before = inside & inside.reshape(-1)[target] & (target > position)
    # The next pixel of each chain; the end of a chain points to itself.
    following = np.where(processed_before, target, position).reshape(-1)
    while not np.array_equal(farther := following[following], following):
        following = farther
    result: npt.NDArray[np.int64] = target.reshape(-1)[following].reshape(height, width)
    return result


def _smooth(x: Bytes, sigma: float) -> npt.NDArray[np.float32]:
    blurred: npt.NDArray[np.float32] = ndimage.gaussian_filter(
        x.astype(np.float32), (sigma, sigma, 0), mode="nearest"
    )
    return blurred + np.float32(1e-3)  # so that truncation keeps the value of a flat area
