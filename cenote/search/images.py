"""What an index keeps of a picture beside its vector: its size, its date, and how it looks."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

if TYPE_CHECKING:
    from ..backbones.preprocessing import Transform

TAKEN, CHANGED, DETAILS = (
    36867,
    306,
    0x8769,
)  # EXIF: DateTimeOriginal, DateTime, and the block the first is in


class ImageInfoTransform:
    """A transform that keeps what the pixels do not tell; a class, so that worker processes can be given it."""

    def __init__(self, transform: Transform) -> None:
        self.transform = transform

    def __call__(self, image: Image.Image) -> dict[str, Any]:
        return {
            "pixels": self.transform(image),
            "size": torch.tensor(image.size),
            "date": torch.tensor(taken(image), dtype=torch.double),
            "look": look_of(image),
        }


def taken(image: Image.Image) -> float:
    """Seconds since 1970 by the camera's clock, taken for local time; NaN where the file does not say."""
    try:
        exif = image.getexif()
        told = exif.get_ifd(DETAILS).get(TAKEN) or exif.get(CHANGED)
        return datetime.strptime(str(told).strip("\0 ")[:19], "%Y:%m:%d %H:%M:%S").timestamp()
    except Exception:  # whatever a malformed block makes Pillow raise; a picture needs no date
        return float("nan")


def look_of(image: Image.Image) -> int:
    """64 bits, each whether a spot of the picture is lighter than its left neighbour: scaling and JPEG change few.

    By more than two of 255: else the grain of a plain sky would draw the bits.
    """
    grey = np.asarray(
        image.convert("L").resize((9, 8), Image.Resampling.BOX, reducing_gap=3.0), np.int16
    )
    bits = np.packbits(grey[:, 1:] > grey[:, :-1] + 2)
    return int(bits.view(np.int64)[0])


def bits_apart(a: int, b: int) -> int:
    return ((a ^ b) & 0xFFFF_FFFF_FFFF_FFFF).bit_count()
