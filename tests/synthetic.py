"""Data sets without files: noise images that each show one bright shape, whose class, box and mask are known."""

import colorsys
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from cenote.data import BadImage, Box, Dataset, Record, pack

CLASS_COLOURS = ((250, 10, 10), (10, 250, 10), (10, 10, 250))


class Shape(NamedTuple):
    """What one image shows: a filled rectangle, or the disc inside it."""

    size: tuple[int, int]  # width and height of the image
    corners: tuple[int, int, int, int]  # x0, y0, x1, y1
    colour: tuple[int | None, ...]  # None leaves the noise in this channel
    disc: bool = False

    def mask(self) -> np.ndarray:
        (width, height), (x0, y0, x1, y1) = self.size, self.corners
        rows, columns = np.mgrid[:height, :width]
        if self.disc:
            return (rows - (y0 + y1) / 2) ** 2 + (columns - (x0 + x1) / 2) ** 2 < (
                (x1 - x0) / 2
            ) ** 2
        return (rows >= y0) & (rows < y1) & (columns >= x0) & (columns < x1)


class ShapeImages:
    """The pixel source of a data set of shapes. Images in `bad` and masks in `bad_masks` cannot be read; masks in
    `wrong_masks` are one column wider than their image."""

    def __init__(
        self,
        shape: Callable[[int], Shape],
        *,
        masks: bool = False,
        bad: Container[int] = (),
        bad_masks: Container[int] = (),
        wrong_masks: Container[int] = (),
    ) -> None:
        self.shape, self.masks = shape, masks
        self.bad, self.bad_masks, self.wrong_masks = bad, bad_masks, wrong_masks

    def image(self, row: int) -> Image.Image:
        if row in self.bad:
            raise BadImage(f"{row}.png", "damaged")
        shape = self.shape(row)
        pixels = np.random.default_rng(row).integers(0, 120, (*shape.size[::-1], 3), np.uint8)
        for channel, value in enumerate(shape.colour):
            if value is not None:
                pixels[shape.mask(), channel] = value
        return Image.fromarray(pixels)

    def mask(self, row: int) -> np.ndarray | None:
        if not self.masks:
            return None
        if row in self.bad_masks:
            raise BadImage(f"{row}.mask.png", "damaged")
        mask = self.shape(row).mask().astype(np.uint8)
        mask[:2] = 255  # ignored
        return np.pad(mask, ((0, 0), (0, 1))) if row in self.wrong_masks else mask


def square(row: int) -> Shape:
    """A square of 10 pixels in an image of 32 x 32; its colour channel is the class."""
    x, y = (int(v) for v in np.random.default_rng(100 + row).integers(0, 20, 2))
    return Shape((32, 32), (x, y, x + 10, y + 10), _channel(row % 3))


def rectangle(row: int) -> Shape:
    """Images of many shapes, so that width and height cannot be mistaken for each other."""
    rng = np.random.default_rng(100 + row)
    x, y = (int(v) for v in rng.integers(0, 20, 2))
    corners = (x, y, x + int(rng.integers(8, 24)), y + int(rng.integers(8, 20)))
    return Shape((48 + row, 40), corners, _channel(row % 3))


def disc(row: int, classes: int) -> Shape:
    """A disc whose hue is the class; neighbouring classes have hues that are far apart."""
    x, y = (int(v) for v in np.random.default_rng(100 + row).integers(10, 22, 2))
    red, green, blue = (
        round(255 * c) for c in colorsys.hsv_to_rgb(row % classes * 5 % classes / classes, 1, 1)
    )
    return Shape((32, 32), (x - 8, y - 8, x + 8, y + 8), (red, green, blue), disc=True)


def _channel(channel: int) -> tuple[int | None, ...]:
    return tuple(255 if i == channel else None for i in range(3))


def squares(images: int = 24, bad: Container[int] = ()) -> Dataset:
    """Three classes, no boxes or masks; every fourth image is in the validation split."""
    records = [
        Record(f"{i}.png", "abc"[i % 3], "val" if i % 4 == 3 else "train") for i in range(images)
    ]
    return _dataset("squares", records, ShapeImages(square, bad=bad))


def split_rectangles(
    images: int = 24,
    *,
    test: bool = False,
    unboxed: Container[int] = (),
    bad_masks: Container[int] = (),
) -> Dataset:
    """Three classes with boxes and masks; of four images one validates and, with `test`, one tests."""
    splits = ["train", "train", "test" if test else "train", "val"]
    records = [
        Record(
            f"{i}.png",
            "abc"[i % 3],
            splits[i % 4],
            () if i in unboxed else (Box(*rectangle(i).corners),),
        )
        for i in range(images)
    ]
    return _dataset("rectangles", records, ShapeImages(rectangle, masks=True, bad_masks=bad_masks))


def rectangles(
    images: int = 15,
    *,
    boxes: Mapping[int, tuple[Box, ...]] | None = None,
    labels: str = "abc",
    masks: bool = True,
    bad: Container[int] = (),
    wrong_masks: Container[int] = (),
) -> Dataset:
    """Three classes with boxes and masks, without splits."""
    truth = {i: (Box(*rectangle(i).corners),) for i in range(images)} | dict(boxes or {})
    records = [Record(f"{i}.png", labels[i % 3], boxes=truth[i]) for i in range(images)]
    pixels = ShapeImages(rectangle, masks=masks, bad=bad, wrong_masks=wrong_masks)
    return _dataset("rectangles", records, pixels, sorted(set(labels)))


def discs(
    classes: int = 16,
    images: int = 6,
    split_of: Callable[[int], str | None] = lambda i: None,
    bad: Container[int] = (),
) -> Dataset:
    """Many classes, unseen ones among them distinguishable by hue; image i is of class i % classes."""
    records = [
        Record(f"{i}.png", f"class {i % classes:02}", split_of(i)) for i in range(classes * images)
    ]
    return _dataset("discs", records, ShapeImages(lambda row: disc(row, classes), bad=bad))


def coloured_images(folder: Path, images: int = 12, labels: str = "abc") -> Dataset:
    """Write images of one colour each, the colour of their class, with masks of an object in the middle."""
    records = []
    for i in range(images):
        mask = np.full((32, 32), 2, np.uint8)
        mask[10:22, 10:22] = 1
        Image.new("RGB", (32, 32), CLASS_COLOURS[i % 3]).save(folder / f"{i}.png")
        Image.fromarray(mask).save(folder / f"{i}-mask.png")
        records.append(Record(f"{i}.png", labels[i % 3], masks=(f"{i}-mask.png",)))
    return pack(records, folder, "made")


def _dataset(
    name: str, records: Iterable[Record], pixels: ShapeImages, classes: list[str] | None = None
) -> Dataset:
    dataset = pack(records, Path(name), name, classes=classes)
    dataset.pixels = pixels
    return dataset
