"""Predicted segments of photographs beside the ground truth."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from ..data import Dataset
from ..metrics import resize_mask
from .sheet import SheetEntry, contact_sheet


def segmentation_page(
    dataset: Dataset, predicted: Mapping[int, Any], scores: Mapping[int, float], heading: str
) -> Image.Image:
    """Draw photograph, truth and prediction (size x size, 0 the background) of each image."""
    entries = []
    for position, classes in predicted.items():
        prediction = np.asarray(classes)
        size = (prediction.shape[1], prediction.shape[0])
        photo = dataset.image(position).resize(size, Image.Resampling.BILINEAR)
        pictures = [photo, coloured(photo, prediction)]
        mask = dataset.mask(position)
        if mask is not None:
            truth = resize_mask(mask, prediction.shape).astype(np.int64)
            if prediction.max() > 1 and not dataset.mask_codes.startswith("classes"):
                truth[truth == 1] = 1 + int(dataset.labels[position])
            pictures.insert(1, coloured(photo, truth))
        note = f"mIoU {scores[position]:.0f}"
        entries.append(SheetEntry(pictures, dataset.path(position).name, note))
    return contact_sheet(entries, f"{heading} · photograph, truth, prediction", columns=2)


def coloured(photo: Image.Image, classes: Any) -> Image.Image:
    """Colour each class, half transparent; the background stays, uncounted pixels become grey."""
    palette = np.array([_colour(number) for number in range(256)], np.uint8)
    numbers = np.where(classes == 255, 0, classes) % 256
    layer = Image.fromarray(palette[numbers])
    strength = np.where(classes == 0, 0, 140).astype(np.uint8)
    return Image.composite(layer, photo, Image.fromarray(strength))


def _colour(number: int) -> Sequence[int]:
    if number == 0:
        return (128, 128, 128)
    # Steps of the golden angle: consecutive numbers have very different colours, amber first.
    hue = (0.11 + 0.618034 * (number - 1)) % 1
    return [round(255 * c) for c in colorsys.hsv_to_rgb(hue, 0.85, 1.0)]
