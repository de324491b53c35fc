"""Elastic transform: a random affine map, then a smooth random displacement."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import fft
from torch.nn.functional import grid_sample

Floats = npt.NDArray[np.float32]


def elastic_transform(
    x: npt.NDArray[np.uint8], severity: int, draw: np.random.Generator
) -> npt.NDArray[Any]:
    """All lengths are of an image of 224 pixels and grow with the shorter side."""
    height, width = x.shape[:2]
    scale = min(height, width) / 224
    # 244 stands in the published program; the three columns are its alpha, sigma and the reach of the affine map.
    alpha, sigma, reach = (
        (244 * 2, 244 * 0.7, 244 * 0.1),
        (244 * 2, 244 * 0.08, 244 * 0.2),
        (244 * 0.05, 244 * 0.01, 244 * 0.02),
        (244 * 0.07, 244 * 0.01, 244 * 0.02),
        (244 * 0.12, 244 * 0.01, 244 * 0.02),
    )[severity - 1]
    third = min(height, width) // 3
    middle = np.array([width // 2, height // 2], np.float64)
    corners = middle + third * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    moved = corners + draw.uniform(-reach, reach, (3, 2)) * scale
    across, down = np.meshgrid(
        np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64)
    )
    pixels = x.astype(np.float32)
    if third:  # a triangle of no size has no affine map
        back = _affine(moved, corners)  # from where a pixel comes
        sx, sy = (back[k, 0] * across + back[k, 1] * down + back[k, 2] for k in (0, 1))
        pixels = sampled(pixels, sx, sy, about_pixel=True)
    # A mean of sigma^2 independent draws shrinks with sigma: alpha grows by the square, and displacements by `scale`.
    dx, dy = (
        smoothed(draw.uniform(-1, 1, (height, width)), sigma * scale) * alpha * scale**2
        for _ in range(2)
    )
    return sampled(pixels, across + dx, down + dy, about_pixel=False) + np.float32(1e-3)


def _affine(
    before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """(2, 3): takes three points to three points; least squares where they lie on a line."""
    system = np.hstack([before, np.ones((3, 1))])
    return np.linalg.lstsq(system, after, rcond=None)[0].T.astype(np.float64)


def sampled(
    x: Floats, across: npt.NDArray[Any], down: npt.NDArray[Any], about_pixel: bool
) -> Floats:
    """(H, W, C) at places in pixels, bilinearly; beyond the border mirrored about the last pixel, or about its edge."""
    height, width = x.shape[:2]
    if about_pixel:
        grid = np.stack([2 * across / max(width - 1, 1) - 1, 2 * down / max(height - 1, 1) - 1], 2)
    else:
        grid = np.stack([(2 * across + 1) / width - 1, (2 * down + 1) / height - 1], 2)
    planes = torch.from_numpy(np.ascontiguousarray(x.transpose(2, 0, 1)))[None]
    places = torch.from_numpy(grid.astype(np.float32))[None]
    found = grid_sample(planes, places, "bilinear", "reflection", align_corners=about_pixel)
    result: Floats = found[0].permute(1, 2, 0).numpy()
    return result


def smoothed(x: npt.NDArray[np.float64], sigma: float) -> npt.NDArray[np.float64]:
    """A Gaussian filter cut off at 3 sigma over a mirrored border, as scipy.ndimage has it.

    Cosines are what such a filter only scales: two cosine transforms take the place of up to 1,025 taps.
    """
    rows, columns = (_response(side, sigma) for side in x.shape)
    filtered: npt.NDArray[np.float64] = fft.idctn(fft.dctn(x) * rows[:, None] * columns)
    return filtered


@lru_cache(64)
def _response(n: int, sigma: float) -> npt.NDArray[np.float64]:
    """What the filter leaves of each of n cosines."""
    taps = np.arange(1, int(3 * sigma + 0.5) + 1)
    if not len(taps):
        return np.ones(n)
    weights = np.exp(-(taps**2) / (2 * sigma**2))
    waves = np.cos(np.pi / n * np.outer(np.arange(n), taps))
    found: npt.NDArray[np.float64] = (1 + 2 * waves @ weights) / (1 + 2 * weights.sum())
    return found
