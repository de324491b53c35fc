"""Squares of which box and mask are known: images of two shapes, so that width and height cannot be mixed up."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from cenote.data import BadImage, Box, Dataset, Record, pack


def place(row: int) -> tuple[int, int, int]:
    """Left, top and side of the square in an image."""
    draw = np.random.default_rng(row)
    return int(draw.integers(0, 20)), int(draw.integers(0, 14)), int(draw.integers(10, 16))


class Marked:
    """Image i is class i % 3: noise with a bright square whose colour is the class."""

    def __init__(self, bad_masks: tuple[int, ...] = ()) -> None:
        self.bad_masks = bad_masks

    def image(self, row: int) -> Image.Image:
        pixels = np.random.default_rng(row).integers(0, 120, (32, 40 + row % 2 * 8, 3), np.uint8)
        x, y, side = place(row)
        pixels[y : y + side, x : x + side, row % 3] = 255
        return Image.fromarray(pixels)

    def mask(self, row: int) -> np.ndarray:
        if row in self.bad_masks:
            raise BadImage(f"{row}.mask.png", "damaged")
        mask = np.zeros((32, 40 + row % 2 * 8), np.uint8)
        x, y, side = place(row)
        mask[y : y + side, x : x + side] = 1
        mask[:, -2:] = 255  # does not count
        return mask


def marked(
    images: int = 24, unboxed: Sequence[int] = (), bad_masks: tuple[int, ...] = (), test: bool = False
) -> Dataset:
    """Of four images one validates and, if asked for, one tests."""
    names = ["train", "train", "test" if test else "train", "val"]
    records = []
    for i in range(images):
        x, y, side = place(i)
        found = () if i in unboxed else (Box(x, y, x + side, min(y + side, 32)),)
        records.append(Record(f"{i}.png", "abc"[i % 3], names[i % 4], found))
    dataset = pack(records, Path("marked"), "marked")
    dataset.pixels = Marked(bad_masks)
    return dataset
