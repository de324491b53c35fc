"""Photographs on their way into a model: the whole of each, nothing cropped, and a name for its pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image
from torch import Tensor

from ..backbones import Preprocessing
from ..data import read_image

PICTURE = 1024  # longest side of the pictures that are drawn; boxes are told in pixels of the file


@dataclass(frozen=True)
class Photo:
    path: Path
    name: str  # its pictures' name
    size: tuple[int, int]  # (width, height) of the file, upright
    picture: Image.Image  # at most PICTURE pixels wide and high
    pixels: Tensor  # (3, h, w): what the map is made of
    glance: Tensor  # (3, h, w): what the class is told from


def open_photo(path: Path, name: str, preprocessing: Preprocessing, sides: Sides) -> Photo:
    """Read it once, for the model and for the pictures.

    The class is told at the size the model was trained at: its confidence falls with the size of what it knows
    (lite0 at twice its size says "pizza" with 8% instead of 67%), while its map gets finer.
    """
    image = read_image(path)
    size = image.size
    pixels = preprocessing.whole(sides(size)[::-1])(image)
    small = replace(sides, size=preprocessing.size)(size)
    glance = pixels if small == sides(size) else preprocessing.whole(small[::-1])(image)
    if max(size) > PICTURE:  # a batch of large photographs must not fill the memory
        image.thumbnail((PICTURE, PICTURE), Image.Resampling.LANCZOS)
    return Photo(path, name, size, image, pixels, glance)


@dataclass(frozen=True)
class Sides:
    """Width and height for the model: the photograph's shape, an area of about `size` x `size`, whole strides."""

    size: int
    stride: tuple[int, int]  # down, across
    fixed: tuple[int, int] | None = None  # (width, height) of a model that takes nothing else

    def __call__(self, size: tuple[int, int]) -> tuple[int, int]:
        if self.fixed is not None:
            return self.fixed
        scale = self.size / math.sqrt(size[0] * size[1])
        down, across = self.stride
        # No side beyond four times the size: a photograph of 10 x 10,000 pixels is squeezed rather than endless.
        width, height = (min(side * scale, 4 * self.size) for side in size)
        return max(1, round(width / across)) * across, max(1, round(height / down)) * down


def names_for(paths: Sequence[Path]) -> list[str]:
    """A name for each file's pictures: its stem, with its folder and suffix where that alone is taken."""
    taken: set[str] = set()
    names = []
    for path in paths:
        stem, folder = path.stem[:100], path.resolve().parent.name[:60]
        full = f"{folder}-{stem}-{path.suffix[1:]}"
        wanted = [
            stem,
            f"{folder}-{stem}",
            full,
            *(f"{full}-{i}" for i in range(2, len(paths) + 2)),
        ]
        name = next(
            name for name in wanted if name.casefold() not in taken
        )  # some disks know no capitals
        taken.add(name.casefold())
        names.append(name)
    return names
