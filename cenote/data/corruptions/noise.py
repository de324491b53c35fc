"""Gaussian, shot and impulse noise: each value of each channel by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def gaussian_noise(
    x: npt.NDArray[np.uint8], severity: int, draw: np.random.Generator
) -> npt.NDArray[Any]:
    """x + N(0, s)."""
    s = (0.08, 0.12, 0.18, 0.26, 0.38)[severity - 1]
    noise = draw.standard_normal(x.shape, np.float32)
    noise *= 255 * s
    noise += x
    return noise


def shot_noise(
    x: npt.NDArray[np.uint8], severity: int, draw: np.random.Generator
) -> npt.NDArray[Any]:
    """Poisson(c x) / c: as many photons as there is light."""
    c = (60, 25, 12, 5, 3)[severity - 1]
    return draw.poisson(x * (c / 255)) * (255 / c)


def impulse_noise(
    x: npt.NDArray[np.uint8], severity: int, draw: np.random.Generator
) -> npt.NDArray[Any]:
    """A share of all values becomes black or white, as often the one as the other."""
    share = (0.03, 0.06, 0.09, 0.17, 0.27)[severity - 1]
    u = draw.random(x.shape, np.float32)
    result = x.copy()
    result[u < share] = 0
    result[u < share / 2] = 255
    return result
