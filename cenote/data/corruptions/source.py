"""A data set whose images are corrupted as they are read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..dataset import Dataset
from ..loading import mixed
from .registry import checked, corrupt

LONGEST = 4  # sides of an image that is brought to a size, as a multiple of the shorter one


def with_corruption(
    dataset: Dataset,
    name: str,
    severity: int = 3,
    seed: int = 0,
    short: int | None = None,
    interpolation: str = "bicubic",
) -> Dataset:
    """The same images, corrupted; what is drawn depends on the seed and the image alone.

    The published numbers count pixels of what the model sees. `short` brings the shorter side of every image (and
    mask) to so many pixels first: give it what the model's own preprocessing resizes to, and its `interpolation`.
    Boxes are then left out.
    """
    checked(name, severity)
    if short is not None and short < 1:
        raise ValueError(f"the shorter side has at least one pixel, got {short}")
    result = dataset.select(range(len(dataset)))
    result.name = f"{dataset.name} ({name} {severity})"
    result.pixels = Corrupted(dataset, name, severity, seed, short, interpolation)
    if short is not None:
        result.columns = {**dataset.columns, "boxes": None}
    return result


class Corrupted:
    """Images and masks by row of the columns, for `Dataset.pixels`."""

    def __init__(
        self,
        dataset: Dataset,
        name: str,
        severity: int,
        seed: int,
        short: int | None,
        interpolation: str = "bicubic",
    ) -> None:
        self.dataset = dataset.select(range(len(dataset)))
        self.dataset.rows = np.arange(len(dataset.columns["label"]))  # positions are rows
        self.name, self.severity, self.seed, self.short = name, severity, seed, short
        plain = interpolation.partition("-")[0].upper()  # Pillow's nearest is exact
        # As the model's preprocessing takes a name that is none: timm's "random" is for training.
        self.interpolation = getattr(Image.Resampling, plain, Image.Resampling.BICUBIC)

    def image(self, row: int) -> Image.Image:
        image = self.dataset.image(row)
        if self.short is not None:
            part = middle(image.size)
            image = image.resize(self._size(part), self.interpolation, box=part)
        return corrupt(image, self.name, self.severity, mixed(self.seed, row))

    def mask(self, row: int) -> npt.NDArray[np.uint8] | None:
        mask = self.dataset.mask(row)
        if mask is None or self.short is None:
            return mask
        part = middle((mask.shape[1], mask.shape[0]))
        small = Image.fromarray(mask).resize(self._size(part), Image.Resampling.NEAREST, box=part)
        return np.asarray(small)

    def _size(self, part: tuple[int, int, int, int]) -> tuple[int, int]:
        """As torchvision's Resize rounds, which then has nothing left to do."""
        assert self.short is not None
        width, height = part[2] - part[0], part[3] - part[1]
        if width <= height:
            return self.short, max(1, int(self.short * height / width))
        return max(1, int(self.short * width / height)), self.short


def middle(size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The part of an image that is brought to a size: all of it, but for one that is very long or very high.

    A picture of 3 x 4,000 pixels would become one of 256 x 341,333. The model's crop that follows is a square in the
    middle, no larger than the shorter side: what is cut off here is far from all that it sees.
    """
    sides = [min(side, LONGEST * min(size)) for side in size]
    left, top = ((whole - side) // 2 for whole, side in zip(size, sides, strict=True))
    return left, top, left + sides[0], top + sides[1]
