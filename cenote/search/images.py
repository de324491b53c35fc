"""Read images for an index: size, date and difference hash of each, and pictures of entries."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from ..data import BadImage, Dataset, open_dataset, read_image
from .store import ImageEntry

if TYPE_CHECKING:
    from ..backbones.preprocessing import Transform

# EXIF tags; DateTimeOriginal is in the block EXIF_IFD.
DATE_TIME_ORIGINAL, DATE_TIME, EXIF_IFD = 36867, 306, 0x8769


class ImageInfoTransform:
    """Apply a transform and keep what it discards; a class, so that workers can receive it."""

    def __init__(self, transform: Transform) -> None:
        self.transform = transform

    def __call__(self, image: Image.Image) -> dict[str, Any]:
        return {
            "pixels": self.transform(image),
            "size": torch.tensor(image.size),
            "date": torch.tensor(date_taken(image), dtype=torch.double),
            "look": difference_hash(image),
        }


def date_taken(image: Image.Image) -> float:
    """Return seconds since 1970 by the camera's clock, read as local time; NaN if unknown."""
    try:
        exif = image.getexif()
        text = exif.get_ifd(EXIF_IFD).get(DATE_TIME_ORIGINAL) or exif.get(DATE_TIME)
        return datetime.strptime(str(text).strip("\0 ")[:19], "%Y:%m:%d %H:%M:%S").timestamp()
    except Exception:  # Pillow raises anything for a malformed block
        return float("nan")


def difference_hash(image: Image.Image) -> int:
    """Return 64 bits: whether a cell is lighter than its left neighbour, by more than 2 of 255.

    Scaling and JPEG change few bits; the threshold keeps the noise of a plain sky out.
    """
    small = image.convert("L").resize((9, 8), Image.Resampling.BOX, reducing_gap=3.0)
    grey = np.asarray(small, np.int16)
    bits = np.packbits(grey[:, 1:] > grey[:, :-1] + 2)
    return int(bits.view(np.int64)[0])


class EntryImages:
    """Load the pictures of entries: files, or images of a data set, which is opened once."""

    def __init__(self) -> None:
        self.datasets: dict[str, tuple[Dataset, dict[str, int]]] = {}

    def file(self, path: str | Path) -> Image.Image | None:
        """Return None if the file does not exist or is not an image."""
        try:
            return read_image(path)
        except BadImage:
            return None

    def __call__(self, entry: ImageEntry) -> Image.Image | None:
        if entry.time:
            return self.file(entry.path)
        if entry.source not in self.datasets:
            dataset = open_dataset(entry.source)
            positions = {dataset[i].image: i for i in range(len(dataset))}
            self.datasets[entry.source] = dataset, positions
        dataset, positions = self.datasets[entry.source]
        position = positions.get(entry.path.partition(":")[2])
        return None if position is None else dataset.image(position)
