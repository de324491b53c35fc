"""Contrast, pixelation and JPEG."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image


def contrast(
    x: npt.NDArray[np.uint8], severity: int, draw: np.random.Generator
) -> npt.NDArray[Any]:
    """(x - m) c + m with the mean m of each channel."""
    c = (0.4, 0.3, 0.2, 0.1, 0.05)[severity - 1]
    mean = x.mean((0, 1))
    result: npt.NDArray[Any] = x * np.float32(c) + ((1 - c) * mean + 1e-3).astype(np.float32)
    return result


def pixelate(
    x: npt.NDArray[np.uint8], severity: int, draw: np.random.Generator
) -> npt.NDArray[Any]:
    """Shrunk by averaging, then enlarged by repeating."""
    c = (0.6, 0.5, 0.4, 0.3, 0.25)[severity - 1]
    image = Image.fromarray(x)
    small = image.resize(
        (max(1, int(image.width * c)), max(1, int(image.height * c))), Image.Resampling.BOX
    )
    return np.asarray(small.resize(image.size, Image.Resampling.BOX))


def jpeg_compression(
    x: npt.NDArray[np.uint8], severity: int, draw: np.random.Generator
) -> npt.NDArray[Any]:
    quality = (25, 18, 15, 10, 7)[severity - 1]
    file = BytesIO()
    Image.fromarray(x).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))
