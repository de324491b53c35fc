"""A corruption by its published name.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019.
The numbers are those of the program that made ImageNet-C, which worked on crops of 224 x 224. They count pixels: the
same numbers are milder on a larger image (`with_corruption(short=...)` brings images to the model's size first). What
follows the image's size: elastic_transform's displacements (as published at 224), pixelate's grid, zoom_blur's crops,
fog's map, contrast's mean. What is ours: frost's texture (see frost.py). ImageNet-C also stored every result as JPEG of
quality 85, which is not repeated here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from ...options import suggest
from .blur import defocus_blur, motion_blur, zoom_blur
from .digital import contrast, jpeg_compression, pixelate
from .elastic import elastic_transform
from .frost import frost
from .glass import glass_blur
from .noise import gaussian_noise, impulse_noise, shot_noise
from .weather import brightness, fog, snow

# uint8 (H, W, 3), severity, generator -> the same shape, uint8, or numbers that are clipped to 0...255 and truncated
Corruption = Callable[[npt.NDArray[np.uint8], int, np.random.Generator], npt.NDArray[Any]]
Picture = TypeVar("Picture", Image.Image, npt.NDArray[np.uint8])

SEVERITIES = (1, 2, 3, 4, 5)
GROUPS: dict[str, tuple[Corruption, ...]] = {
    "noise": (gaussian_noise, shot_noise, impulse_noise),
    "blur": (defocus_blur, glass_blur, motion_blur, zoom_blur),
    "weather": (snow, frost, fog, brightness),
    "digital": (contrast, elastic_transform, pixelate, jpeg_compression),
}
CORRUPTIONS: dict[str, Corruption] = {
    one.__name__: one for group in GROUPS.values() for one in group
}


def corrupt(image: Picture, name: str, severity: int = 3, seed: int = 0) -> Picture:
    """A corrupted copy of an RGB image, uint8 (H, W, 3) or Pillow's; what is drawn depends on the seed alone."""
    corruption = checked(name, severity)
    if isinstance(image, Image.Image):
        return Image.fromarray(_apply(corruption, np.asarray(image.convert("RGB")), severity, seed))
    if (
        not isinstance(image, np.ndarray)
        or image.dtype != np.uint8
        or image.ndim != 3
        or image.shape[2] != 3
    ):
        told = (
            f"{image.dtype} {image.shape}"
            if isinstance(image, np.ndarray)
            else type(image).__name__
        )
        raise ValueError(f"an image to corrupt is Pillow's or uint8 (H, W, 3), got {told}")
    return _apply(corruption, image, severity, seed)


def checked(name: str, severity: int) -> Corruption:
    """The corruption of this name, or a sentence."""
    if name not in CORRUPTIONS:
        hint = suggest(name, CORRUPTIONS) or f": {', '.join(CORRUPTIONS)}"
        raise ValueError(f"no corruption '{name}'{hint}")
    if severity not in SEVERITIES:
        raise ValueError(f"severity is a whole number from 1 to 5, got {severity}")
    return CORRUPTIONS[name]


def _apply(
    corruption: Corruption, x: npt.NDArray[np.uint8], severity: int, seed: int
) -> npt.NDArray[np.uint8]:
    if not x.size:
        raise ValueError(f"an image without pixels cannot be corrupted: {x.shape}")
    result = corruption(x, int(severity), np.random.default_rng(seed % 2**64))
    if result.dtype != np.uint8:
        result = np.clip(result, 0, 255).astype(np.uint8)  # truncated, not rounded, as published
    return result
