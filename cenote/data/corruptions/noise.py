"""Gaussian, shot and impulse noise, independent for each value of each channel."""

from __future__ import annotations

import numpy as np

from .registry import Array, Bytes, Rng, corruption


@corruption("noise", order=1)
def gaussian_noise(x: Bytes, severity: int, rng: Rng) -> Array:
    """Return x + N(0, s)."""
    s = (0.08, 0.12, 0.18, 0.26, 0.38)[severity - 1]
    noise = rng.standard_normal(x.shape, np.float32)
    noise *= 255 * s
    noise += x
    return noise


@corruption("noise", order=2)
def shot_noise(x: Bytes, severity: int, rng: Rng) -> Array:
    """Return Poisson(c x) / c."""
    c = (60, 25, 12, 5, 3)[severity - 1]
    return rng.poisson(x * (c / 255)) * (255 / c)


@corruption("noise", order=3)
def impulse_noise(x: Bytes, severity: int, rng: Rng) -> Array:
    """Set a share of all values to black or white, with equal probability."""
    share = (0.03, 0.06, 0.09, 0.17, 0.27)[severity - 1]
    u = rng.random(x.shape, np.float32)
    result = x.copy()
    result[u < share] = 0
    result[u < share / 2] = 255
    return result
