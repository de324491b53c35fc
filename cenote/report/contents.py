"""What a data set looks like: a page of its images with their boxes, masks and classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from ..data import BadImage, Box, Dataset, Record, write_atomically
from ..data.truth import spread
from .maps import BOX_COLOUR
from .sheet import Entry, contact_sheet, font

Size = tuple[int, int]
Corners = tuple[int, int, int, int]
PAGE, SIDE = 40, 220
# Clear of each other and of skin, grass and sky. A single object's mask has the first, and its box amber.
COLOURS = [
    (230, 60, 160),
    (40, 190, 220),
    (150, 90, 240),
    (120, 210, 60),
    (250, 120, 40),
    (60, 110, 250),
]


def write_contents(dataset: Dataset, path: Path, positions: Sequence[int] | None = None) -> None:
    """The contact sheet as a file, of the images at these positions, by default of all."""
    if path.suffix.lower() not in (".jpg", ".jpeg", ".png", ".webp"):
        raise ValueError(f"{path}: a contact sheet is a .jpg, .png or .webp file")
    page = contents_sheet(dataset, positions)
    with write_atomically(path) as temporary:
        page.save(
            temporary, quality=92, subsampling=0
        )  # Pillow ignores what a format does not know


def contents_sheet(
    dataset: Dataset, positions: Sequence[int] | None = None, most: int = PAGE
) -> Image.Image:
    """Images of as many classes as there is room for, each with its truth drawn on it."""
    entries = []
    for position in choose(dataset, range(len(dataset)) if positions is None else positions, most):
        try:
            entries.append(_entry(dataset, position))
        except BadImage:  # the report names it
            continue
    if not entries:
        raise ValueError(f"{dataset.name}: no image of it can be shown")
    classes = f", {len(dataset.classes)} classes" if dataset.classes else ""
    return contact_sheet(
        entries, f"{dataset.name} · {len(dataset):,} images{classes}", columns=8, side=SIDE
    )


def choose(dataset: Dataset, positions: Sequence[int], most: int) -> list[int]:
    """Classes and domains in turn, each one's images in order, evenly spread over those there are."""
    labels, domains = dataset.labels, dataset.domains.codes
    groups: dict[tuple[int, int], list[int]] = {}
    for position in positions:
        groups.setdefault((int(labels[position]), int(domains[position])), []).append(position)
    kept, takes, left = spread(sorted(groups), most), {}, most
    for i, key in enumerate(
        sorted(kept, key=lambda key: len(groups[key]))
    ):  # small ones leave room for the others
        takes[key] = min(len(groups[key]), left // (len(kept) - i))
        left -= takes[key]
    return [position for key in kept for position in spread(groups[key], takes[key])]


def draw_truth(
    image: Image.Image, record: Record, mask: np.ndarray | None, side: int = 2 * SIDE
) -> Image.Image:
    """The image, from SIDE to `side` pixels long, with its mask in colour and its boxes, named where they differ."""
    scale = min(
        max(1.0, SIDE / max(image.size)), side / max(image.size)
    )  # lines on a tiny image would hide it
    small = image.resize(
        [max(1, round(length * scale)) for length in image.size], Image.Resampling.LANCZOS
    )
    if mask is not None:
        small = _tint(small, mask)
    factors = (small.width / image.width, small.height / image.height)
    _draw_boxes(ImageDraw.Draw(small), record.boxes, factors, small.size)
    return small


def _entry(dataset: Dataset, position: int) -> Entry:
    record = dataset[position]
    image = dataset.image(position)
    try:
        mask = dataset.mask(position)
    except BadImage:
        mask = None
    if mask is not None and mask.shape != image.size[::-1]:
        mask = None
    named = Counter(box.label for box in record.boxes if box.label)
    boxes = ", ".join(f"{name} x {n}" if n > 1 else name for name, n in named.items())
    title = (
        record.label or boxes or record.caption or Path(record.image).name or f"image {position}"
    )
    note = " · ".join(part for part in (record.domain, record.split) if part)
    return Entry([draw_truth(image, record, mask)], title, note)


def _tint(image: Image.Image, mask: np.ndarray) -> Image.Image:
    """Objects in colour with a line around them; what does not count in grey."""
    small = np.asarray(Image.fromarray(mask).resize(image.size, Image.Resampling.NEAREST))
    pixels = np.asarray(image).astype(np.float32)
    for code in np.unique(small):
        if code == 0:
            continue
        area = small == code
        colour = (128, 128, 128) if code == 255 else COLOURS[(int(code) - 1) % len(COLOURS)]
        pixels[area] = 0.65 * pixels[area] + 0.35 * np.array(colour)
        if code != 255:
            pixels[area & ~_inner(area)] = colour
    return Image.fromarray(np.rint(pixels).astype(np.uint8))


def _inner(area: np.ndarray) -> np.ndarray:
    """Without the pixels that touch another area."""
    padded = np.pad(area, 2, mode="edge")
    inner = area.copy()
    for dy, dx in ((0, 2), (4, 2), (2, 0), (2, 4)):
        inner &= padded[dy : dy + area.shape[0], dx : dx + area.shape[1]]
    return inner


def _draw_boxes(
    draw: ImageDraw.ImageDraw, boxes: Sequence[Box], scale: tuple[float, float], size: Size
) -> None:
    """The large ones first; names where there is room for them."""
    own = sorted({box.label for box in boxes if box.label})
    colours = {None: BOX_COLOUR} | {
        label: [BOX_COLOUR, *COLOURS][i % 7] for i, label in enumerate(own)
    }
    line = max(2, round(min(size) / 90))
    placed: list[tuple[Corners, str]] = []
    for box in sorted(boxes, key=lambda box: (box.x1 - box.x2) * (box.y2 - box.y1)):
        corners = _corners(box, scale, size)
        if corners is not None:
            draw.rectangle(corners, outline=(0, 0, 0), width=line + 1)
            draw.rectangle(corners, outline=colours[box.label], width=line)
            placed += [(corners, box.label)] if box.label else []
    taken: list[Corners] = []
    letters = font(max(14, round(max(size) / 22)))  # as large as the caption when the page is made
    for (x1, y1, x2, _), label in placed:
        left, _, right, bottom = draw.textbbox((x1 + 3, y1 + 1), label, letters)
        plate = (x1, y1, int(right) + 3, int(bottom) + 2)
        if right - left < x2 - x1 and not any(_overlap(plate, other) for other in taken):
            taken.append(plate)
            draw.rectangle(plate, fill=colours[label])
            draw.text((x1 + 3, y1 + 1), label, (0, 0, 0), letters)


def _corners(box: Box, scale: tuple[float, float], size: Size) -> Corners | None:
    """In pixels of the small picture, inside of it; None if nothing of the box is."""
    x1, x2 = (min(max(0, round(x * scale[0])), size[0] - 1) for x in (box.x1, box.x2))
    y1, y2 = (min(max(0, round(y * scale[1])), size[1] - 1) for y in (box.y1, box.y2))
    return (x1, y1, x2, y2) if x1 < x2 and y1 < y2 else None


def _overlap(a: Corners, b: Corners) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
