"""Defocus, glass, motion and zoom blur."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from scipy import fft, ndimage
from torch.nn.functional import interpolate

from .registry import Array, Bytes, Rng, corruption

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]

FLAT = np.float32(1e-3)  # added so that truncation keeps the value of a flat area


@corruption("blur", order=4)
def defocus_blur(x: Bytes, severity: int, rng: Rng) -> Array:
    """Average over a disk; the image is mirrored about its outermost pixels."""
    kernel = disk(*((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))[severity - 1])
    reach = len(kernel) // 2
    planes = x.transpose(2, 0, 1).astype(np.float32)
    padded = np.pad(planes, ((0, 0), (reach, reach), (reach, reach)), "reflect")
    size = [fft.next_fast_len(side, real=True) for side in padded.shape[1:]]
    # A product of transforms instead of 289 to 441 multiplications per pixel; the disk is symmetric.
    spectrum = fft.rfft2(padded, size) * fft.rfft2(kernel, size)
    blurred = fft.irfft2(spectrum, size)[:, 2 * reach :, 2 * reach :][:, : x.shape[0], : x.shape[1]]
    result: Array = blurred.transpose(1, 2, 0)
    return result + FLAT


@cache
def disk(radius: int, smoothing: float) -> Floats:
    """Return a disk whose edge is smoothed by a Gaussian of 3 x 3 or 5 x 5.

    It sums to one up to radius 6. The published program mirrors at the border of the kernel, which
    disks of 8 and 10 touch: they sum to 1.013, and brighten.
    """
    reach = max(radius, 8)
    y, x = np.ogrid[-reach : reach + 1, -reach : reach + 1]
    inside = (x**2 + y**2 <= radius**2).astype(np.float64)
    half_width = 1 + (radius > 8)
    taps = np.arange(-half_width, half_width + 1)
    weights = np.exp(-(taps**2) / (2 * smoothing**2))
    weights /= weights.sum()
    for axis in (0, 1):
        inside = ndimage.correlate1d(inside, weights, axis, mode="mirror")
    kernel: Floats = (inside / (x**2 + y**2 <= radius**2).sum()).astype(np.float32)
    return kernel


@corruption("blur", order=5)
def glass_blur(x: Bytes, severity: int, rng: Rng) -> Array:
    """Blur, copy random neighbours several times, blur again."""
    settings = ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))
    sigma, reach, rounds = settings[severity - 1]
    pixels = _smooth(x, sigma).astype(np.uint8)
    for _ in range(rounds):
        # Down and across; the upper end is excluded.
        steps = rng.integers(-reach, reach, (2, *x.shape[:2]))
        pixels = pixels.reshape(-1, 3)[source_pixels(steps, reach)].reshape(x.shape)
    return _smooth(pixels, sigma)


def source_pixels(steps: Positions, reach: int) -> Positions:
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
    sources: Positions = target.reshape(-1)[following].reshape(height, width)
    return sources


def _smooth(x: Bytes, sigma: float) -> Floats:
    pixels = x.astype(np.float32)
    blurred: Floats = ndimage.gaussian_filter(pixels, (sigma, sigma, 0), mode="nearest")
    return blurred + FLAT


@corruption("blur", order=6)
def motion_blur(x: Bytes, severity: int, rng: Rng) -> Array:
    """Blur along a line within 45 degrees of the horizontal."""
    radius, sigma = ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))[severity - 1]
    return as_written(blur_along_line(x.astype(np.float32), radius, sigma, rng.uniform(-45, 45)))


def as_written(levels: Floats) -> Floats:
    """Round to 16 bits, then truncate to 8 bits, as ImageMagick 6 Q16 writes its results."""
    written: Floats = np.floor(levels + np.float32(0.5 / 257))
    return written


def blur_along_line(x: Floats, radius: int, sigma: float, angle: float) -> Floats:
    """Return ImageMagick's motion blur of (H, W) or (H, W, C).

    The weights are half a Gaussian over 2 radius + 1 steps in one direction, rounded to pixels; the
    outermost pixels are repeated beyond the border.
    """
    height, width = x.shape[:2]
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    down, across = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    reach = 2 * radius + 1
    padded = np.pad(x, [(reach, reach)] * 2 + [(0, 0)] * (x.ndim - 2), "edge")
    result, product = np.zeros_like(x), np.empty_like(x)
    for i, weight in zip(steps.tolist(), weights.astype(np.float32), strict=True):
        top, left = reach + math.ceil(i * down - 0.5), reach + math.ceil(i * across - 0.5)
        shifted = padded[top : top + height, left : left + width]
        result += np.multiply(shifted, weight, out=product)
    return result


@corruption("blur", order=7)
def zoom_blur(x: Bytes, severity: int, rng: Rng) -> Array:
    """Average the image and its centre at increasing magnification."""
    settings = ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))
    stop, step = settings[severity - 1]
    # Rounding includes `stop` in some of these, as in the published program.
    factors = np.arange(1, stop, step)
    planes = np.ascontiguousarray(x.transpose(2, 0, 1), np.float32)
    total = planes.copy()
    for factor in factors:
        total += zoom(planes, float(factor))
    return total.transpose(1, 2, 0) / (len(factors) + 1) + FLAT


def zoom(planes: Floats, factor: float) -> Floats:
    """Enlarge the centre of (C, H, W) to (C, H, W), bilinearly, with aligned corners."""
    height, width = planes.shape[1:]
    rows, columns = math.ceil(height / factor), math.ceil(width / factor)
    top, left = (height - rows) // 2, (width - columns) // 2
    centre = torch.from_numpy(planes[:, top : top + rows, left : left + columns])[None]
    size = (max(height, round(rows * factor)), max(width, round(columns * factor)))
    large = interpolate(centre, size, mode="bilinear", align_corners=True)[0].numpy()
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    result: Floats = large[:, top : top + height, left : left + width]
    return result
