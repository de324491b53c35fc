"""ImageNet-9's background variants, for any data set with masks of its objects.

Xiao et al., "Noise or Signal", ICLR 2021; tiles as in the program that made the published sets.
"""

from __future__ import annotations

import json
import random
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from ..progress import progress_bar
from .checks import check
from .dataset import Dataset
from .files import write_atomically, write_text
from .images import BadImage

VARIANTS = (
    *("original", "only_fg", "mixed_same", "mixed_rand"),
    *("mixed_next", "no_fg", "only_bg_b", "only_bg_t"),
)
MAX_DONORS = 10  # images tried for a background
Rectangle = tuple[int, int, int, int]  # left, top, right, bottom; right and bottom exclusive
Pixels = npt.NDArray[np.uint8]


def tiled_box(image: Pixels, box: Rectangle) -> Pixels:
    """Return the image with the object's box filled with background (Only-BG-T).

    The largest strip of background, as high or as wide as the image, is tiled over the image from
    its corner; the box shows these tiles.
    """
    left, top, right, bottom = box
    height, width = image.shape[:2]
    strips = (image[bottom:], image[:top], image[:, right:], image[:, :left])
    strip = max(strips, key=lambda pixels: pixels.size)  # ties keep the first
    check(strip.size != 0, "the object's box covers the full image, without background")
    rows, columns = -(-height // strip.shape[0]), -(-width // strip.shape[1])
    tiles = np.tile(strip, (rows, columns, 1))
    result = image.copy()
    result[top:bottom, left:right] = tiles[top:bottom, left:right]
    return result


def object_box(mask: Pixels) -> Rectangle:
    """Return the box around all objects of a mask, uncertain borders included."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def with_background(dataset: Dataset, variant: str, seed: int = 0) -> Dataset:
    """Return the same images with another background, without images that lack mask or class.

    mixed_same takes the background of another image of the class, mixed_rand of a random image of a
    random class, mixed_next of a random image of the next class. The randomness depends on the seed
    and the image alone.
    """
    check(variant in VARIANTS, f"no background variant '{variant}': {', '.join(VARIANTS)}")
    usable = dataset.has_masks & (dataset.labels >= 0)
    check(usable.any(), f"{dataset.name} has no image with both a mask and a class")
    result = dataset.select(usable)
    result.name = f"{dataset.name} ({variant})"
    result.pixels = _VariantPixels(dataset, result.rows, variant, seed)
    return result


def write_variants(dataset: Dataset, out: Path, seed: int = 0) -> list[str]:
    """Write a folder with a list for each variant; return messages about images left out."""
    messages = []
    for variant in VARIANTS:
        changed = with_background(dataset, variant, seed)
        lines = []
        for i in progress_bar(variant, len(changed), iterable=range(len(changed))):
            record = changed[i]
            name = Path(record.image or f"{i:06d}").with_suffix("").as_posix().replace("/", "_")
            try:
                image = changed.image(i)
            except BadImage as error:
                messages.append(f"{variant}: {error}")
                continue
            file = f"images/{name}.png"
            with write_atomically(out / variant / file) as temporary:
                image.save(temporary)
            lines.append({"file": file, "label": record.label, "split": record.split})
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        write_text(out / variant / "annotations.jsonl", text)
    return messages


class _VariantPixels:
    def __init__(
        self, dataset: Dataset, rows: npt.NDArray[np.int64], variant: str, seed: int
    ) -> None:
        self.dataset, self.rows = dataset.all_rows(), rows
        self.variant, self.seed = variant, seed

    def image(self, row: int) -> Image.Image:
        image = self.dataset.image(row)
        return image if self.variant == "original" else Image.fromarray(self._draw(row, image))

    def mask(self, row: int) -> Pixels | None:
        return self.dataset.mask(row)

    def _draw(self, row: int, image: Image.Image) -> Pixels:
        pixels = np.asarray(image)
        mask = self._mask(row, pixels)
        if self.variant == "only_fg":
            return np.where((mask == 1)[..., None], pixels, np.uint8(0))
        if self.variant == "no_fg":  # nor its uncertain border
            return np.where((mask == 0)[..., None], pixels, np.uint8(0))
        if self.variant == "only_bg_b":
            left, top, right, bottom = object_box(mask)
            black = pixels.copy()
            black[top:bottom, left:right] = 0
            return black
        if self.variant == "only_bg_t":
            return self._tiled(row)
        # The object over another image's Only-BG-T, resized and cropped to its size.
        background = self._donor_background(row)
        if background.shape != pixels.shape:
            donor = Image.fromarray(background)
            background = np.asarray(ImageOps.fit(donor, image.size, Image.Resampling.BILINEAR))
        return np.where((mask == 1)[..., None], pixels, background)

    def _mask(self, row: int, pixels: Pixels) -> Pixels:
        mask = self.dataset.mask(row)
        if mask is None or mask.shape != pixels.shape[:2] or not (mask == 1).any():
            raise BadImage(self.dataset.path(row), "no mask of its size with an object in it")
        return mask

    def _tiled(self, row: int) -> Pixels:
        pixels = np.asarray(self.dataset.image(row))
        box = object_box(self._mask(row, pixels))
        try:
            return tiled_box(pixels, box)
        except ValueError as error:
            raise BadImage(self.dataset.path(row), str(error)) from error

    def _donor_background(self, row: int) -> Pixels:
        """Return the background of the first donor that has one: an object may fill its image."""
        *donors, last_donor = self._donors(row)
        for donor in donors:
            with suppress(BadImage):
                return self._tiled(donor)
        return self._tiled(last_donor)

    def _donors(self, row: int) -> list[int]:
        """Return some of the images that the variant allows, in random order."""
        rng = random.Random(f"{self.seed}/{self.variant}/{row}")
        k = self._classes.index(int(self.dataset.labels[row]))
        if self.variant == "mixed_rand":
            k = rng.randrange(len(self._classes))
        elif self.variant == "mixed_next":
            k = (k + 1) % len(self._classes)
        members = self._members[k]
        if len(members) > 1:
            members = members[members != row]
        return rng.sample(members.tolist(), min(len(members), MAX_DONORS))

    @cached_property
    def _classes(self) -> list[int]:
        return [int(label) for label in np.unique(self.dataset.labels[self.rows])]

    @cached_property
    def _members(self) -> list[npt.NDArray[np.int64]]:
        return [self.rows[self.dataset.labels[self.rows] == label] for label in self._classes]
