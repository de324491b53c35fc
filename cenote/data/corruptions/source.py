"""A data set whose images are corrupted as they are read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..dataset import Dataset
from ..loading import mixed
from .registry import checked, corrupt


def with_corruption(dataset: Dataset, name: str, severity: int = 3, seed: int = 0, short: int | None = None) -> Dataset:
    """The same images, corrupted; what is drawn depends on the seed and the image alone.

    The published numbers count pixels of what the model sees. `short` brings the shorter side of every image (and
    mask) to so many pixels first: give it what the model's own preprocessing resizes to. Boxes are then left out.
    """
    checked(name, severity)
    if short is not None and short < 1:
        raise ValueError(f"the shorter side has at least one pixel, got {short}")
    result = dataset.select(range(len(dataset)))
    result.name = f"{dataset.name} ({name} {severity})"
    result.pixels = Corrupted(dataset, name, severity, seed, short)
    if short is not None:
        result.columns = {**dataset.columns, "boxes": None}
    return result


class Corrupted:
    """Images and masks by row of the columns, for `Dataset.pixels`."""

    def __init__(self, dataset: Dataset, name: str, severity: int, seed: int, short: int | None) -> None:
        self.dataset = dataset.select(range(len(dataset)))
        self.dataset.rows = np.arange(len(dataset.columns["label"]))  # positions are rows
        self.name, self.severity, self.seed, self.short = name, severity, seed, short

    def image(self, row: int) -> Image.Image:
        image = self.dataset.image(row)
        if self.short is not None:
            image = image.resize(self._size(image.size), Image.Resampling.BICUBIC)
        return corrupt(image, self.name, self.severity, mixed(self.seed, row))

    def mask(self, row: int) -> npt.NDArray[np.uint8] | None:
        mask = self.dataset.mask(row)
        if mask is None or self.short is None:
            return mask
        small = Image.fromarray(mask).resize(self._size(mask.shape[::-1]), Image.Resampling.NEAREST)
        return np.asarray(small)

    def _size(self, size: tuple[int, ...]) -> tuple[int, int]:
        """As torchvision's Resize rounds, which then has nothing left to do."""
        assert self.short is not None
        width, height = size
        if width <= height:
            return self.short, max(1, int(self.short * height / width))
        return max(1, int(self.short * width / height)), self.short
