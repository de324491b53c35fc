"""ImageNet-9's background variants of any data set that knows its objects' masks.

Xiao et al., "Noise or Signal", ICLR 2021; the tiling follows the program that made the published sets.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from .dataset import Dataset
from .files import write_atomically
from .images import BadImage

VARIANTS = (
    "original",
    "only_fg",
    "mixed_same",
    "mixed_rand",
    "mixed_next",
    "no_fg",
    "only_bg_b",
    "only_bg_t",
)
Rectangle = tuple[int, int, int, int]  # left, top, right, bottom, the last two exclusive
Pixel = npt.NDArray[np.uint8]


def only_foreground(image: Pixel, mask: Pixel) -> Pixel:
    """The object on black (Only-FG)."""
    return np.where((mask == 1)[..., None], image, np.uint8(0))


def no_foreground(image: Pixel, mask: Pixel) -> Pixel:
    """The object's silhouette in black (No-FG), with the border that may belong to it."""
    return np.where((mask == 0)[..., None], image, np.uint8(0))


def black_box(image: Pixel, box: Rectangle) -> Pixel:
    """The object's rectangle in black (Only-BG-B)."""
    left, top, right, bottom = box
    result = image.copy()
    result[top:bottom, left:right] = 0
    return result


def tiled_box(image: Pixel, box: Rectangle) -> Pixel:
    """The object's rectangle filled with what lies beside it (Only-BG-T).

    The largest strip of background, as high or as wide as the image, is laid out from the image's corner again and
    again; what falls into the rectangle is kept.
    """
    left, top, right, bottom = box
    height, width = image.shape[:2]
    beside, above = max(left, width - right), max(top, height - bottom)
    if beside * height > above * width:
        strip = image[:, :left] if left > width - right else image[:, right:]
    else:
        strip = image[:top] if top > height - bottom else image[bottom:]
    if strip.size == 0:
        raise ValueError("the object's box covers the whole image: it has no background")
    rows, columns = (-(-height // strip.shape[0]), -(-width // strip.shape[1]))
    tiled = np.tile(strip, (rows, columns, 1))
    result = image.copy()
    result[top:bottom, left:right] = tiled[top:bottom, left:right]
    return result


def mixed(image: Pixel, mask: Pixel, background: Pixel) -> Pixel:
    """The object over another image's Only-BG-T, which is scaled and cut to this image's size."""
    height, width = mask.shape
    if background.shape != image.shape:
        fitted = ImageOps.fit(
            Image.fromarray(background), (width, height), Image.Resampling.BILINEAR
        )
        background = np.asarray(fitted)
    return np.where((mask == 1)[..., None], image, background)


def with_background(dataset: Dataset, variant: str, seed: int = 0) -> Dataset:
    """The same images, each with another background; those without mask or class are left out.

    mixed_same takes the background of another image of the class, mixed_rand of a random image of a random class,
    mixed_next of a random image of the next class. The draws depend on the seed and the image alone.
    """
    if variant not in VARIANTS:
        raise ValueError(f"no background variant '{variant}': {', '.join(VARIANTS)}")
    usable = dataset.has_masks & (dataset.labels >= 0)
    if not usable.any():
        raise ValueError(f"{dataset.name} has no image with both a mask and a class")
    result = dataset.select(usable)
    result.name = f"{dataset.name} ({variant})"
    result.pixels = _Variants(dataset, result.rows, variant, seed)
    return result


def write_variants(
    dataset: Dataset, out: Path, seed: int = 0, variants: Sequence[str] = VARIANTS
) -> list[str]:
    """A folder of each variant, with its list; returns what could not be made, and why."""
    from tqdm import tqdm

    left_out = []
    for variant in variants:
        changed = with_background(dataset, variant, seed)
        lines = []
        for i in tqdm(range(len(changed)), desc=variant, unit="image", disable=None, leave=False):
            record = changed[i]
            name = (
                Path(record.image).with_suffix("").as_posix().replace("/", "_")
                if record.image
                else f"{i:06d}"
            )
            path = out / variant / "images" / f"{name}.png"
            try:
                image = changed.image(i)
            except BadImage as error:
                left_out.append(f"{variant}: {error}")
                continue
            with write_atomically(path) as temporary:
                image.save(temporary)
            lines.append(
                json.dumps(
                    {"file": f"images/{name}.png", "label": record.label, "split": record.split}
                )
            )
        with write_atomically(out / variant / "annotations.jsonl") as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return left_out


class _Variants:
    def __init__(
        self, dataset: Dataset, rows: npt.NDArray[np.int64], variant: str, seed: int
    ) -> None:
        self.dataset = dataset.all_rows()
        self.rows, self.variant, self.seed = rows, variant, seed

    def image(self, row: int) -> Image.Image:
        pixels = np.asarray(self.dataset.image(row))
        if self.variant == "original":
            return Image.fromarray(pixels)
        mask = self._mask(row, pixels)
        if self.variant == "only_fg":
            return Image.fromarray(only_foreground(pixels, mask))
        if self.variant == "no_fg":
            return Image.fromarray(no_foreground(pixels, mask))
        if self.variant == "only_bg_b":
            return Image.fromarray(black_box(pixels, rectangle(mask)))
        if self.variant == "only_bg_t":
            return Image.fromarray(self._tiled(row))
        return Image.fromarray(mixed(pixels, mask, self._other_background(row)))

    def mask(self, row: int) -> Pixel | None:
        return self.dataset.mask(row)

    def _mask(self, row: int, pixels: Pixel) -> Pixel:
        mask = self.dataset.mask(row)
        if mask is None or mask.shape != pixels.shape[:2] or not (mask == 1).any():
            raise BadImage(
                self.dataset.path(row), "it has no mask of its size with an object in it"
            )
        return mask

    def _tiled(self, row: int) -> Pixel:
        pixels = np.asarray(self.dataset.image(row))
        try:
            return tiled_box(pixels, rectangle(self._mask(row, pixels)))
        except BadImage:
            raise
        except ValueError as error:
            raise BadImage(self.dataset.path(row), str(error)) from error

    def _other_background(self, row: int) -> Pixel:
        """Of the first donor that has one: an object may fill its image."""
        donors = self._donors(row)
        for donor in donors[:-1]:
            try:
                return self._tiled(donor)
            except BadImage:
                continue
        return self._tiled(donors[-1])

    def _donors(self, row: int) -> list[int]:
        """A few of those that the variant allows, in a random order."""
        draw = random.Random(f"{self.seed}/{self.variant}/{row}")
        place = self._present.index(int(self.dataset.labels[row]))
        if self.variant == "mixed_rand":
            place = draw.randrange(len(self._present))
        elif self.variant == "mixed_next":
            place = (place + 1) % len(self._present)
        members = self._members[place]
        others = members[members != row]
        allowed = (others if len(others) else members).tolist()
        return draw.sample(allowed, min(len(allowed), 10))

    @cached_property
    def _present(self) -> list[int]:
        return [int(label) for label in np.unique(self.dataset.labels[self.rows])]

    @cached_property
    def _members(self) -> list[npt.NDArray[np.int64]]:
        return [self.rows[self.dataset.labels[self.rows] == label] for label in self._present]


def rectangle(mask: Pixel) -> Rectangle:
    """Around all objects of a mask, with the borders that may belong to them."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
