"""Contact sheet of a data set: images with their boxes, masks and classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from ..data import BadImage, Box, Dataset, Record
from ..data.ground_truth import evenly_spaced
from .maps import BOX_COLOUR
from .sheet import SheetEntry, contact_sheet, fit, font, save_picture

Corners = tuple[int, int, int, int]
MAX_IMAGES, SIDE = 40, 220
IGNORED = 255  # the value of a mask for pixels that do not count
# Distinct from each other and from skin, grass and sky. The mask of a single object has the first
# colour, its box is amber.
COLOURS = [
    (230, 60, 160),
    (40, 190, 220),
    (150, 90, 240),
    (120, 210, 60),
    (250, 120, 40),
    (60, 110, 250),
]


def write_contents(dataset: Dataset, path: Path, positions: Sequence[int] | None = None) -> None:
    """Write a contact sheet of the images at these positions, by default of all."""
    if path.suffix.lower() not in (".jpg", ".jpeg", ".png", ".webp"):
        raise ValueError(f"{path}: a contact sheet is a .jpg, .png or .webp file")
    save_picture(contents_sheet(dataset, positions), path)


def contents_sheet(dataset: Dataset, positions: Sequence[int] | None = None) -> Image.Image:
    """Draw at most 40 images of as many classes as possible, with their ground truth."""
    entries = []
    if positions is None:
        positions = range(len(dataset))
    for position in choose_positions(dataset, positions, MAX_IMAGES):
        with suppress(BadImage):  # listed in the report
            entries.append(_entry(dataset, position))
    if not entries:
        raise ValueError(f"{dataset.name}: none of its images can be drawn")
    heading = f"{dataset.name} · {len(dataset):,} images"
    if dataset.classes:
        heading += f", {len(dataset.classes)} classes"
    return contact_sheet(entries, heading, columns=8, side=SIDE)


def choose_positions(dataset: Dataset, positions: Sequence[int], limit: int) -> list[int]:
    """Choose images evenly from all classes and domains, in order."""
    labels, domains = dataset.labels, dataset.domains.codes
    groups: dict[tuple[int, int], list[int]] = {}
    for position in positions:
        groups.setdefault((int(labels[position]), int(domains[position])), []).append(position)
    keys, counts = evenly_spaced(sorted(groups), limit), {}
    # Small groups first: what they do not use is left for the others.
    for i, key in enumerate(sorted(keys, key=lambda key: len(groups[key]))):
        counts[key] = min(len(groups[key]), limit // (len(keys) - i))
        limit -= counts[key]
    return [position for key in keys for position in evenly_spaced(groups[key], counts[key])]


def draw_truth(image: Image.Image, record: Record, mask: np.ndarray | None) -> Image.Image:
    """Draw the mask and the boxes on an image, resized to between 220 and 440 pixels."""
    # Lines would hide a tiny image.
    picture = fit(image, min(max(SIDE, max(image.size)), 2 * SIDE))
    if mask is not None:
        picture = _tint(picture, mask)
    scale = (picture.width / image.width, picture.height / image.height)
    _draw_boxes(picture, record.boxes, scale)
    return picture


def _entry(dataset: Dataset, position: int) -> SheetEntry:
    record = dataset[position]
    image = dataset.image(position)
    mask = None
    with suppress(BadImage):
        mask = dataset.mask(position)
    if mask is not None and mask.shape != image.size[::-1]:
        mask = None
    counts = Counter(box.label for box in record.boxes if box.label)
    boxes = ", ".join(name + f" x {n}" * (n > 1) for name, n in counts.items())
    name = Path(record.image).name or f"image {position}"
    title = record.label or boxes or ", ".join(record.labels or ()) or record.caption or name
    note = " · ".join(text for text in (record.domain, record.split) if text)
    return SheetEntry([draw_truth(image, record, mask)], title, note)


def _tint(image: Image.Image, mask: np.ndarray) -> Image.Image:
    """Colour objects and their outlines; pixels that are ignored become grey."""
    codes = np.asarray(Image.fromarray(mask).resize(image.size, Image.Resampling.NEAREST))
    pixels = np.asarray(image).astype(np.float32)
    for code in np.unique(codes[codes > 0]):
        area, colour = codes == code, COLOURS[(int(code) - 1) % len(COLOURS)]
        if code == IGNORED:
            colour = (128, 128, 128)
        pixels[area] = 0.65 * pixels[area] + 0.35 * np.array(colour)
        if code != IGNORED:
            interior = Image.fromarray(area.astype(np.uint8)).filter(ImageFilter.MinFilter(5))
            pixels[area & (np.asarray(interior) == 0)] = colour
    return Image.fromarray(np.rint(pixels).astype(np.uint8))


def _draw_boxes(picture: Image.Image, boxes: Sequence[Box], scale: tuple[float, float]) -> None:
    """Draw large boxes first, and names where there is space."""
    palette, draw = [BOX_COLOUR, *COLOURS], ImageDraw.Draw(picture)
    names = sorted({box.label for box in boxes if box.label})
    colours = {name: palette[i % len(palette)] for i, name in enumerate(names)}
    line = max(2, round(min(picture.size) / 90))
    drawn: list[tuple[Corners, str | None]] = []
    last = np.array(picture.size * 2) - 1
    for box in sorted(boxes, key=lambda box: (box.x1 - box.x2) * (box.y2 - box.y1)):
        corners = np.rint([box.x1, box.y1, box.x2, box.y2] * np.array(scale * 2))
        x1, y1, x2, y2 = np.clip(corners, 0, last).astype(int).tolist()
        if x1 < x2 and y1 < y2:
            draw.rectangle((x1, y1, x2, y2), outline=(0, 0, 0), width=line + 1)
            colour = colours.get(box.label or "", BOX_COLOUR)
            draw.rectangle((x1, y1, x2, y2), outline=colour, width=line)
            drawn.append(((x1, y1, x2, y2), box.label))
    plates: list[Corners] = []
    letters = font(max(14, round(max(picture.size) / 22)))  # as large as the caption on the page
    for (x1, y1, x2, _), label in drawn:
        if label:
            left, _, right, bottom = draw.textbbox((x1 + 3, y1 + 1), label, letters)
            plate = (x1, y1, int(right) + 3, int(bottom) + 2)
            if right - left < x2 - x1 and not any(_overlap(plate, other) for other in plates):
                plates.append(plate)
                draw.rectangle(plate, fill=colours[label])
                draw.text((x1 + 3, y1 + 1), label, (0, 0, 0), letters)


def _overlap(a: Corners, b: Corners) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
