"""Registry of corruptions.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations", ICLR 2019. The constants are those of the program that made ImageNet-C, which worked
on crops of 224 x 224. They count pixels: the same constants are milder on a larger image
(`with_corruption(short=...)` resizes images to the model's size first). These follow the image's
size: elastic_transform's displacements (as published at 224), pixelate's grid, zoom_blur's crops,
fog's map, contrast's mean. Frost's texture is ours (see weather.py). ImageNet-C also stored every
result as JPEG of quality 85, which is not repeated here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from ...options import suggest
from ..checks import check

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Rng = np.random.Generator
# uint8 (H, W, 3), severity, generator -> the same shape: uint8, or numbers that are clipped to
# 0...255 and truncated
Corruption = Callable[[Bytes, int, Rng], Array]
AnyImage = TypeVar("AnyImage", Image.Image, Bytes)

SEVERITIES = (1, 2, 3, 4, 5)


class RegisteredCorruption(NamedTuple):
    """A corruption with its place among the others."""

    order: int
    name: str
    group: str
    function: Corruption


_registry: dict[str, RegisteredCorruption] = {}


def corruption(group: str, order: int) -> Callable[[Corruption], Corruption]:
    """Register a function under its name, in a group; `order` is its place in tables.

    ImageNet-C's fifteen are 1 to 15; others follow and do not enter mCE.
    """

    def register(function: Corruption) -> Corruption:
        name = function.__name__
        _registry[name] = RegisteredCorruption(order, name, group, function)
        return function

    return register


def registered() -> list[RegisteredCorruption]:
    """Return the registered corruptions in order."""
    return sorted(_registry.values(), key=lambda entry: (entry.order, entry.name))


def find_corruption(name: str, severity: int = 1) -> Corruption:
    """Return a corruption by name, after a check of the severity."""
    if name not in _registry:
        names = ", ".join(entry.name for entry in registered())
        hint = suggest(name, _registry) or f": {names}"
        raise ValueError(f"no corruption '{name}'{hint}")
    check(severity in SEVERITIES, f"severity must be an integer from 1 to 5, got {severity}")
    return _registry[name].function


def corrupt(image: AnyImage, name: str, severity: int = 3, seed: int = 0) -> AnyImage:
    """Return a corrupted copy of an RGB image, uint8 (H, W, 3) or Pillow's."""
    if isinstance(image, Image.Image):
        pixels = np.asarray(image.convert("RGB"))
        return Image.fromarray(corrupt(pixels, name, severity, seed))
    function, pixels = find_corruption(name, severity), np.asarray(image)
    valid = pixels.dtype == np.uint8 and pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.size
    kind = f"{type(image).__name__} {pixels.dtype} {pixels.shape}"
    check(valid, f"expected a Pillow image or uint8 (H, W, 3) with pixels, got {kind}")
    result = function(pixels, int(severity), np.random.default_rng(seed % 2**64))
    if result.dtype != np.uint8:
        result = np.clip(result, 0, 255).astype(np.uint8)  # truncated, not rounded, as published
    return result
