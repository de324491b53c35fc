"""Resize maps to the size of a picture."""

from __future__ import annotations

import numpy as np
from PIL import Image


def stretch(a: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize a map (H, W) to a picture of `size` (width, height): smooth and non-negative.

    Cells are areas, not points: the centre of cell i is at (i + 1/2) / W of the width.
    """
    picture = Image.fromarray(np.ascontiguousarray(a, dtype=np.float32))
    resized = np.asarray(picture.resize(size, Image.Resampling.BICUBIC))
    return np.asarray(np.clip(resized, 0, None))  # bicubic dips below zero next to a peak
