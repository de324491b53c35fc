"""Contrast, elastic transform, pixelation and JPEG compression."""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from scipy import fft
from torch.nn.functional import grid_sample

from .registry import Array, Bytes, Rng, corruption

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@corruption("digital", order=12)
def contrast(x: Bytes, severity: int, rng: Rng) -> Array:
    """Return (x - m) c + m with the mean m of each channel."""
    c = (0.4, 0.3, 0.2, 0.1, 0.05)[severity - 1]
    mean = x.mean((0, 1))
    result: Array = x * np.float32(c) + ((1 - c) * mean + 1e-3).astype(np.float32)
    return result


@corruption("digital", order=13)
def elastic_transform(x: Bytes, severity: int, rng: Rng) -> Array:
    """Apply a random affine map, then a smooth random displacement.

    All lengths are for an image of 224 pixels and scale with the shorter side.
    """
    height, width = x.shape[:2]
    scale = min(height, width) / 224
    # The published program has 244; the columns are its alpha, sigma and the reach of the affine map.
    alpha, sigma, reach = (
        (244 * 2, 244 * 0.7, 244 * 0.1),
        (244 * 2, 244 * 0.08, 244 * 0.2),
        (244 * 0.05, 244 * 0.01, 244 * 0.02),
        (244 * 0.07, 244 * 0.01, 244 * 0.02),
        (244 * 0.12, 244 * 0.01, 244 * 0.02),
    )[severity - 1]
    third = min(height, width) // 3
    centre = np.array([width // 2, height // 2], np.float64)
    corners = centre + third * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    moved = corners + rng.uniform(-reach, reach, (3, 2)) * scale
    columns, rows = np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64)
    across, down = np.meshgrid(columns, rows)
    pixels = x.astype(np.float32)
    if third:  # a triangle of size zero has no affine map
        inverse = _affine(moved, corners)  # from target to source
        sx, sy = (inverse[k, 0] * across + inverse[k, 1] * down + inverse[k, 2] for k in (0, 1))
        pixels = sample_at(pixels, sx, sy, about_pixel=True)
    # A mean of sigma^2 independent draws shrinks with sigma: alpha grows by the square of `scale`,
    # and displacements by `scale`.
    dx, dy = (
        smooth(rng.uniform(-1, 1, (height, width)), sigma * scale) * alpha * scale**2
        for _ in range(2)
    )
    return sample_at(pixels, across + dx, down + dy, about_pixel=False) + np.float32(1e-3)


def _affine(before: Doubles, after: Doubles) -> Doubles:
    """Return (2, 3), which maps three points to three points; least squares if they are collinear."""
    system = np.hstack([before, np.ones((3, 1))])
    return np.linalg.lstsq(system, after, rcond=None)[0].T.astype(np.float64)


def sample_at(x: Floats, across: Array, down: Array, about_pixel: bool) -> Floats:
    """Sample (H, W, C) bilinearly at positions in pixels.

    Beyond the border it is mirrored about the outermost pixel's centre or edge.
    """
    height, width = x.shape[:2]
    if about_pixel:
        grid = np.stack([2 * across / max(width - 1, 1) - 1, 2 * down / max(height - 1, 1) - 1], 2)
    else:
        grid = np.stack([(2 * across + 1) / width - 1, (2 * down + 1) / height - 1], 2)
    planes = torch.from_numpy(np.ascontiguousarray(x.transpose(2, 0, 1)))[None]
    positions = torch.from_numpy(grid.astype(np.float32))[None]
    sampled = grid_sample(planes, positions, "bilinear", "reflection", align_corners=about_pixel)
    result: Floats = sampled[0].permute(1, 2, 0).numpy()
    return result


def smooth(x: Doubles, sigma: float) -> Doubles:
    """Return scipy.ndimage's Gaussian filter, truncated at 3 sigma over a mirrored border.

    The filter only scales cosines: two cosine transforms replace up to 1,025 taps.
    """
    rows, columns = (_response(side, sigma) for side in x.shape)
    filtered: Doubles = fft.idctn(fft.dctn(x) * rows[:, None] * columns)
    return filtered


@lru_cache(64)
def _response(n: int, sigma: float) -> Doubles:
    """Return the factor of the filter for each of n cosines."""
    taps = np.arange(1, int(3 * sigma + 0.5) + 1)
    if not len(taps):
        return np.ones(n)
    weights = np.exp(-(taps**2) / (2 * sigma**2))
    waves = np.cos(np.pi / n * np.outer(np.arange(n), taps))
    response: Doubles = (1 + 2 * waves @ weights) / (1 + 2 * weights.sum())
    return response


@corruption("digital", order=14)
def pixelate(x: Bytes, severity: int, rng: Rng) -> Array:
    """Shrink by averaging, then enlarge by repeating."""
    c = (0.6, 0.5, 0.4, 0.3, 0.25)[severity - 1]
    image = Image.fromarray(x)
    size = (max(1, int(image.width * c)), max(1, int(image.height * c)))
    small = image.resize(size, Image.Resampling.BOX)
    return np.asarray(small.resize(image.size, Image.Resampling.BOX))


@corruption("digital", order=15)
def jpeg_compression(x: Bytes, severity: int, rng: Rng) -> Array:
    """Compress and decompress."""
    quality = (25, 18, 15, 10, 7)[severity - 1]
    file = BytesIO()
    Image.fromarray(x).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))
