"""Sixteen classes that need no files: a disc of the class's colour on noise; unseen colours can be told apart too."""

import colorsys
from collections.abc import Callable, Container
from pathlib import Path

import numpy as np
from PIL import Image

from cenote.data import BadImage, Dataset, Record, pack


class Discs:
    def __init__(self, classes: int, bad: Container[int] = ()) -> None:
        self.classes, self.bad = classes, bad

    def image(self, row: int) -> Image.Image:
        if row in self.bad:
            raise BadImage(f"{row}.png", "damaged")
        draw = np.random.default_rng(row)
        pixels = draw.integers(0, 120, (32, 32, 3), np.uint8)
        hue = (row % self.classes * 5 % self.classes) / self.classes  # neighbours in the list are far in colour
        y, x = draw.integers(10, 22, 2)
        rows, columns = np.mgrid[:32, :32]
        inside = (rows - y) ** 2 + (columns - x) ** 2 < 64
        pixels[inside] = [round(255 * c) for c in colorsys.hsv_to_rgb(hue, 1, 1)]
        return Image.fromarray(pixels)

    def mask(self, row: int) -> None:
        return None


def discs(
    classes: int = 16,
    images: int = 6,
    split_of: Callable[[int], str | None] = lambda i: None,
    bad: Container[int] = (),
) -> Dataset:
    """Image i is of class i % classes."""
    records = [Record(f"{i}.png", f"class {i % classes:02}", split_of(i)) for i in range(classes * images)]
    dataset = pack(records, Path("discs"), "discs")
    dataset.pixels = Discs(classes, bad)
    return dataset
