"""Registry of corruptions, which change an image, the images of a data set, or a torchvision input.

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
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms import v2

from ...options import check_known
from ..checks import check
from ..dataset import Dataset
from ..samplers import mix_seed

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Rng = np.random.Generator
# uint8 (H, W, 3), severity, generator -> the same shape: uint8, or numbers that are clipped to
# 0...255 and truncated
Corruption = Callable[[Bytes, int, Rng], Array]
AnyImage = TypeVar("AnyImage", Image.Image, Bytes)

Crop = tuple[int, int, int, int]  # left, top, right, bottom

SEVERITIES = (1, 2, 3, 4, 5)
MAX_ASPECT = 4  # longer images are cropped to this ratio of sides before they are resized


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
    check_known("corruption", name, [entry.name for entry in registered()])
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


def with_corruption(
    dataset: Dataset,
    name: str,
    severity: int = 3,
    seed: int = 0,
    short: int | None = None,
    interpolation: str = "bicubic",
) -> Dataset:
    """Return the same images, corrupted; the randomness depends on the seed and the image alone.

    The published constants count pixels of what the model sees. `short` resizes the shorter side of
    every image (and mask) to this number of pixels first: pass the size and `interpolation` of the
    model's preprocessing. Boxes are then left out.
    """
    find_corruption(name, severity)
    check(short is None or short >= 1, f"short must be at least 1 pixel, got {short}")
    result = dataset.select(range(len(dataset)))
    result.name = f"{dataset.name} ({name} {severity})"
    plain = interpolation.partition("-")[0].upper()  # "nearest-exact" is Pillow's nearest
    # Unknown names such as timm's "random", which is for training, are bicubic, as there.
    resampling = getattr(Image.Resampling, plain, Image.Resampling.BICUBIC)
    rows = dataset.all_rows()
    result.pixels = CorruptedPixels(rows, name, severity, seed, short, resampling)
    if short is not None:
        result.table = dataset.table._replace(boxes=None)
    return result


@dataclass
class CorruptedPixels:
    """Images and masks by row of the table, for `Dataset.pixels`."""

    dataset: Dataset
    name: str
    severity: int
    seed: int
    short: int | None
    resampling: Image.Resampling

    def image(self, row: int) -> Image.Image:
        image = self.dataset.image(row)
        if self.short is not None:
            crop = centre_crop(image.size)
            image = image.resize(resized(crop, self.short), self.resampling, box=crop)
        return corrupt(image, self.name, self.severity, mix_seed(self.seed, row))

    def mask(self, row: int) -> Bytes | None:
        mask = self.dataset.mask(row)
        if mask is None or self.short is None:
            return mask
        crop = centre_crop((mask.shape[1], mask.shape[0]))
        size = resized(crop, self.short)
        return np.asarray(Image.fromarray(mask).resize(size, Image.Resampling.NEAREST, box=crop))


def resized(crop: Crop, short: int) -> tuple[int, int]:
    """Return the size with this shorter side, rounded as torchvision's Resize does."""
    width, height = crop[2] - crop[0], crop[3] - crop[1]
    if width <= height:
        return short, max(1, int(short * height / width))
    return max(1, int(short * width / height)), short


def centre_crop(size: tuple[int, int]) -> Crop:
    """Return the region to resize: the full image, unless one side is more than 4 times the other.

    An image of 3 x 4,000 pixels would become 256 x 341,333. The model's crop that follows is a
    square in the middle, far from what is removed here.
    """
    sides = [min(side, MAX_ASPECT * min(size)) for side in size]
    left, top = ((full - side) // 2 for full, side in zip(size, sides, strict=True))
    return left, top, left + sides[0], top + sides[1]


class Corrupt(v2.Transform):  # type: ignore[misc]  # torchvision has no types
    """Transform of 8-bit RGB images, Pillow's or tensors (3, H, W); seeded by torch's generator.

    Boxes and masks do not change, as in the published protocol: displacements are a few pixels.
    """

    def __init__(self, name: str, severity: int = 3) -> None:
        super().__init__()
        find_corruption(name, severity)
        self.name, self.severity = name, severity

    def make_params(self, flat_inputs: list[Any]) -> dict[str, int]:
        return {"seed": int(torch.randint(2**62, ()))}

    def transform(self, inpt: Any, params: dict[str, int]) -> Any:
        if isinstance(inpt, Image.Image):
            return corrupt(inpt, self.name, self.severity, params["seed"])
        if not (isinstance(inpt, tv_tensors.Image) or type(inpt) is Tensor):
            return inpt
        if inpt.dtype != torch.uint8 or inpt.ndim != 3:
            kind = f"{inpt.dtype} {tuple(inpt.shape)}"
            raise ValueError(f"Corrupt needs 8-bit images (3, H, W), got {kind}")
        pixels = np.ascontiguousarray(inpt.permute(1, 2, 0).numpy())
        corrupted = corrupt(pixels, self.name, self.severity, params["seed"])
        result = torch.from_numpy(corrupted).permute(2, 0, 1)
        if type(inpt) is Tensor:
            return result
        return tv_tensors.wrap(result, like=inpt)

    def extra_repr(self) -> str:
        return f"{self.name}, severity={self.severity}"
