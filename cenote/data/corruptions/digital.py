"""Contrast, pixelation and JPEG compression."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image

from .registry import Array, Bytes, Rng, corruption


@corruption("digital", order=12)
def contrast(x: Bytes, severity: int, rng: Rng) -> Array:
    """Return (x - m) c + m with the mean m of each channel."""
    c = (0.4, 0.3, 0.2, 0.1, 0.05)[severity - 1]
    mean = x.mean((0, 1))
    result: Array = x * np.float32(c) + ((1 - c) * mean + 1e-3).astype(np.float32)
    return result


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
