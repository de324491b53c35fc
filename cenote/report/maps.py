"""Draw a map, a mask, boxes or segments on a photograph."""

from __future__ import annotations

import colorsys
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from ..data import Dataset
from ..data.images import stretch
from ..metrics import resize_mask
from ..metrics.boxes import Box
from .sheet import SheetEntry, contact_sheet, font

BOX_COLOUR = (255, 196, 0)  # amber on a dark rim: visible on grass, fur, sky and snow
TRUTH = (90, 220, 255)  # light blue, beside the amber of predicted boxes


def overlay(photo: Image.Image, a: np.ndarray) -> Image.Image:
    """Draw a map over a photograph: the larger the value, the brighter and the more opaque."""
    if a.shape != photo.size[::-1]:
        a = stretch(a, photo.size)
    # The top hundredth is saturated: a single spike, as some transformers have, would leave
    # everything else dark.
    peak = max(float(np.quantile(a, 0.99)), float(a.max()) / 3, 1e-12)
    value = np.clip(a / peak, 0, 1)  # (h, w)
    colour = _inferno()[np.rint(value * 255).astype(np.uint8)]  # (h, w, 3)
    # Half of the photograph's saturation is removed, so that the colours of the map stand out.
    photo = Image.blend(photo.convert("L").convert("RGB"), photo, 0.5)
    alpha = np.rint(255 * 0.8 * (0.6 + 0.4 * value)).astype(np.uint8)
    return Image.composite(Image.fromarray(colour), photo, Image.fromarray(alpha))


def highlight(photo: Image.Image, mask: np.ndarray) -> Image.Image:
    """Make everything outside the mask (h, w) grey and dark."""
    outside = Image.eval(photo.convert("L"), lambda v: int(v * 0.3)).convert("RGB")
    return Image.composite(photo, outside, Image.fromarray(np.asarray(mask, dtype=bool)))


def draw_box(photo: Image.Image, box: Box | None) -> Image.Image:
    """Draw the box (x0, y0, x1, y1) in pixels, maxima exclusive; None draws nothing."""
    picture = photo.copy()
    if box is not None:
        x0, y0, x1, y1 = box
        right, bottom = max(x0, x1 - 1), max(y0, y1 - 1)
        line = max(2, round(min(photo.size) / 75))
        draw = ImageDraw.Draw(picture)
        draw.rectangle((x0, y0, right, bottom), outline=(0, 0, 0), width=line + 2)
        if min(right - x0, bottom - y0) > 2:  # large enough for a rim
            x0, y0, right, bottom = x0 + 1, y0 + 1, right - 1, bottom - 1
        draw.rectangle((x0, y0, right, bottom), outline=BOX_COLOUR, width=line)
    return picture


def draw_boxes(
    picture: Image.Image,
    boxes: Sequence[Sequence[float]],
    truth: Sequence[Sequence[float]],
    size: tuple[int, int],
) -> Image.Image:
    """Draw boxes in pixels of an image of `size` on a picture of it: true blue, predicted amber."""
    scale = np.array([picture.width, picture.height] * 2) / np.array([*size] * 2)
    picture = picture.copy()
    draw = ImageDraw.Draw(picture)
    line = max(2, round(min(picture.size) / 75))
    for box in truth:
        x0, y0, x1, y1 = np.rint(np.asarray(box) * scale).tolist()
        corners = (x0, y0, max(x0, x1 - 1), max(y0, y1 - 1))
        draw.rectangle(corners, outline=(0, 0, 0), width=line + 1)
        draw.rectangle(corners, outline=TRUTH, width=line)
    for box in boxes:
        x0, y0, x1, y1 = (int(v) for v in np.rint(np.asarray(box) * scale))
        picture = draw_box(picture, (x0, y0, x1, y1))
    return picture


def draw_cells(
    picture: Image.Image, size: tuple[int, int], cells: Sequence[tuple[int, Box]]
) -> Image.Image:
    """Draw numbered boxes in pixels of an image of `size` on a picture of it.

    The number is also the colour; the first of several numbers with one box colours it.
    """
    picture = picture.copy()
    draw = ImageDraw.Draw(picture)
    scale = np.array([picture.width, picture.height] * 2) / np.array([*size] * 2)
    line, numbers = max(2, round(min(picture.size) / 75)), dict[Box, list[int]]()
    for number, box in cells:
        numbers.setdefault(box, []).append(number)
    for box, labels in numbers.items():
        colour = tuple(_colour(labels[0]))
        x0, y0, x1, y1 = np.rint(np.asarray(box) * scale).tolist()
        draw.rectangle((x0, y0, max(x0, x1 - 1), max(y0, y1 - 1)), outline=colour, width=line)
        text, place = " ".join(map(str, labels)), (x0 + 2 * line, y0 + line)
        letters = font(max(12, round(min(picture.size) / 14)))
        draw.text(place, text, "white", letters, stroke_width=2, stroke_fill="black")
    return picture


@functools.cache
def _inferno() -> np.ndarray:
    """Return matplotlib's colour map as 256 colours."""
    import matplotlib

    colours = matplotlib.colormaps["inferno"](np.linspace(0, 1, 256))[:, :3]
    return np.asarray(np.rint(colours * 255), dtype=np.uint8)


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
