"""What a segmenter made of photographs, beside the truth."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from ..data import Dataset
from ..metrics import resize_mask
from .sheet import Entry, contact_sheet


def segmentation_page(
    dataset: Dataset, predicted: Mapping[int, Any], scores: Mapping[int, float], heading: str
) -> Image.Image:
    """Photograph, truth and prediction (class numbers, size x size, 0 the background) of some images, in this order."""
    entries = []
    for place, classes in predicted.items():
        found = np.asarray(classes)
        photo = dataset.image(place).resize(found.shape[::-1], Image.Resampling.BILINEAR)
        truth = dataset.mask(place)
        shown = [photo, coloured(photo, found)]
        if truth is not None:
            several = found.max() > 1 and not dataset.mask_codes.startswith("classes")
            real = resize_mask(truth, found.shape).astype(np.int64)
            real[real == 1] = 1 + int(dataset.labels[place]) if several else 1
            shown.insert(1, coloured(photo, real))
        entries.append(Entry(shown, dataset.path(place).name, f"mIoU {scores[place]:.0f}"))
    return contact_sheet(entries, f"{heading} · photograph, truth, prediction", columns=2)


def coloured(photo: Image.Image, classes: Any) -> Image.Image:
    """Each class in a colour of its own, half transparent; the background as it is, what does not count in grey."""
    palette = np.array([_colour(number) for number in range(256)], np.uint8)
    numbers = np.where(classes == 255, 0, classes) % 256
    layer = Image.fromarray(palette[numbers])
    strength = np.where(classes == 0, 0, 140).astype(np.uint8)
    return Image.composite(layer, photo, Image.fromarray(strength))


def _colour(number: int) -> Sequence[int]:
    if number == 0:
        return (128, 128, 128)
    # Steps of the golden angle: neighbouring numbers have colours far apart, amber first.
    return [
        round(255 * c) for c in colorsys.hsv_to_rgb((0.11 + 0.618034 * (number - 1)) % 1, 0.85, 1.0)
    ]
