"""Images in memory as a data set: PIL images, arrays and tensors, between files if need be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import Tensor

from .dataset import Dataset, pack
from .images import read_image
from .record import Record

# A file, or an image: arrays are (H, W, 3) or (H, W), tensors (3, H, W); floats are from 0 to 1.
ImageLike = str | Path | Image.Image | npt.NDArray[Any] | Tensor


def is_image(value: object) -> bool:
    """Return whether it is an image in memory."""
    return isinstance(value, Image.Image | np.ndarray | Tensor)


def images_in_memory(images: Sequence[ImageLike]) -> Dataset:
    """Return a data set of images; one in memory is called by its position, such as "image 0"."""
    files = [str(path) if isinstance(path, str | Path) else None for path in images]
    records = [Record(file or f"image {i}") for i, file in enumerate(files)]
    dataset = pack(records, Path(), "images")
    dataset.pixels = _ImageList(images)
    return dataset


class _ImageList:
    def __init__(self, images: Sequence[ImageLike]) -> None:
        self.images = images

    def image(self, row: int) -> Image.Image:
        return open_image(self.images[row])

    def mask(self, row: int) -> None:
        return None


def open_image(image: ImageLike) -> Image.Image:
    """Return a file or an image in memory as an upright RGB image."""
    return read_image(image) if isinstance(image, str | Path) else to_pil(image)


def to_pil(image: Image.Image | npt.NDArray[Any] | Tensor) -> Image.Image:
    """Convert an image to RGB."""
    if isinstance(image, Image.Image):
        return image.convert("RGB")
    if isinstance(image, Tensor):
        values = image.detach().cpu().movedim(0, -1).numpy()  # (3, H, W) -> (H, W, 3)
    else:
        values = image
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if values.ndim != 2 and (values.ndim != 3 or values.shape[2] != 3):
        raise ValueError(
            "an image is an array (height, width, 3) or a tensor (3, height, width), got shape "
            f"{tuple(image.shape)}"
        )
    if values.dtype.kind == "f":
        low, high = float(values.min()), float(values.max())
        if not 0 <= low <= high <= 1:
            raise ValueError(f"an image of floats has values from 0 to 1, got {low:g} to {high:g}")
        values = np.rint(values * 255).astype(np.uint8)
    if values.dtype != np.uint8:
        raise ValueError(f"an image has values of uint8 or float, got {values.dtype}")
    return Image.fromarray(values).convert("RGB")
