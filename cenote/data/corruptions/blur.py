"""Defocus, motion and zoom blur."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import fft, ndimage
from torch.nn.functional import interpolate

Floats = npt.NDArray[np.float32]


def defocus_blur(
    x: npt.NDArray[np.uint8], severity: int, draw: np.random.Generator
) -> npt.NDArray[Any]:
    """The mean over a disk; beyond the border the image is mirrored about its last pixel."""
    kernel = disk(*((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))[severity - 1])
    reach = len(kernel) // 2
    planes = x.transpose(2, 0, 1).astype(np.float32)
    padded = np.pad(planes, ((0, 0), (reach, reach), (reach, reach)), "reflect")
    size = [fft.next_fast_len(side, real=True) for side in padded.shape[1:]]
    # A product of transforms instead of 289 to 441 multiplications a pixel; the disk is its own mirror image.
    spectrum = fft.rfft2(padded, size) * fft.rfft2(kernel, size)
    blurred = fft.irfft2(spectrum, size)[:, 2 * reach :, 2 * reach :][:, : x.shape[0], : x.shape[1]]
    result: npt.NDArray[Any] = blurred.transpose(1, 2, 0)
    return result + np.float32(1e-3)  # a flat area must not fall below its value, to be truncated


@cache
def disk(radius: int, smoothing: float) -> Floats:
    """A disk, its edge smoothed by a Gaussian of 3 x 3 or 5 x 5.

    It sums to one up to radius 6. The published program mirrors at the border of the kernel, which disks of 8 and 10
    touch: they sum to 1.013, and brighten.
    """
    reach = max(radius, 8)
    y, x = np.ogrid[-reach : reach + 1, -reach : reach + 1]
    inside = (x**2 + y**2 <= radius**2).astype(np.float64)
    taps = np.arange(-1, 2) if radius <= 8 else np.arange(-2, 3)
    weights = np.exp(-(taps**2) / (2 * smoothing**2))
    weights /= weights.sum()
    for axis in (0, 1):
        inside = ndimage.correlate1d(inside, weights, axis, mode="mirror")
    kernel: Floats = (inside / (x**2 + y**2 <= radius**2).sum()).astype(np.float32)
    return kernel


def motion_blur(
    x: npt.NDArray[np.uint8], severity: int, draw: np.random.Generator
) -> npt.NDArray[Any]:
    """Along a line within 45 degrees of the horizontal."""
    radius, sigma = ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))[severity - 1]
    return np.rint(moved(x.astype(np.float32), radius, sigma, draw.uniform(-45, 45)))


def moved(x: Floats, radius: int, sigma: float, angle: float) -> Floats:
    """ImageMagick's motion blur of (H, W) or (H, W, C): half a Gaussian of 2 radius + 1 steps in one direction.

    Steps go to whole pixels; beyond the border the last pixel goes on.
    """
    height, width = x.shape[:2]
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    down, across = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    reach = 2 * radius + 1
    padded = np.pad(x, [(reach, reach)] * 2 + [(0, 0)] * (x.ndim - 2), "edge")
    result, part = np.zeros_like(x), np.empty_like(x)
    for i, weight in zip(steps.tolist(), weights.astype(np.float32), strict=True):
        top, left = reach + math.ceil(i * down - 0.5), reach + math.ceil(i * across - 0.5)
        result += np.multiply(padded[top : top + height, left : left + width], weight, out=part)
    return result


def zoom_blur(
    x: npt.NDArray[np.uint8], severity: int, draw: np.random.Generator
) -> npt.NDArray[Any]:
    """The mean of the image and of its centre at growing magnification."""
    end, step = ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))[severity - 1]
    factors = np.arange(
        1, end, step
    )  # rounding lets some of these reach the end; the published program has them too
    planes = np.ascontiguousarray(x.transpose(2, 0, 1), np.float32)
    total = planes.copy()
    for factor in factors:
        total += zoomed(planes, float(factor))
    return total.transpose(1, 2, 0) / (len(factors) + 1) + np.float32(1e-3)


def zoomed(planes: Floats, factor: float) -> Floats:
    """The centre of (C, H, W) enlarged to (C, H, W), bilinearly, corner pixel on corner pixel."""
    height, width = planes.shape[1:]
    rows, columns = math.ceil(height / factor), math.ceil(width / factor)
    top, left = (height - rows) // 2, (width - columns) // 2
    part = torch.from_numpy(planes[:, top : top + rows, left : left + columns])[None]
    size = (max(height, round(rows * factor)), max(width, round(columns * factor)))
    large = interpolate(part, size, mode="bilinear", align_corners=True)[0].numpy()
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    result: Floats = large[:, top : top + height, left : left + width]
    return result
