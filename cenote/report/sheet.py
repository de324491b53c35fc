"""Many pictures on one page: each photograph's pictures side by side, a caption under them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

PAPER, INK, FADED = (250, 249, 246), (28, 28, 30), (120, 118, 114)
GAP, MARGIN = 6, 28  # between the pictures of one entry; around entries


class Entry(NamedTuple):
    pictures: Sequence[Image.Image]
    title: str
    note: str = ""  # smaller, at the right


def contact_sheet(
    entries: Sequence[Entry], heading: str = "", columns: int = 0, side: int = 220
) -> Image.Image:
    """One page, `columns` entries wide. Every picture is fitted into a square of `side` pixels, never cropped."""
    if not entries:
        raise ValueError("a contact sheet needs at least one entry")
    each = max(len(entry.pictures) for entry in entries)
    columns = min(len(entries), columns or max(1, 6 // each))
    width = each * side + (each - 1) * GAP
    strips = [_strip(entry, width, side) for entry in entries]
    top = MARGIN + (34 if heading else 0)
    rows = [strips[i : i + columns] for i in range(0, len(strips), columns)]
    heights = [max(strip.height for strip in row) for row in rows]
    page = Image.new(
        "RGB", (MARGIN + columns * (width + MARGIN), top + sum(heights) + MARGIN * len(rows)), PAPER
    )
    if heading:
        draw = ImageDraw.Draw(page)
        draw.text(
            (MARGIN, MARGIN - 8), fitted(heading, page.width - 2 * MARGIN, 18, draw), INK, font(18)
        )
    for row, height in zip(rows, heights, strict=True):
        for i, strip in enumerate(row):
            page.paste(strip, (MARGIN + i * (width + MARGIN), top))
        top += height + MARGIN
    return page


def stacked(sheets: Sequence[Image.Image]) -> Image.Image:
    """One page under the other."""
    page = Image.new("RGB", (max(s.width for s in sheets), sum(s.height for s in sheets)), PAPER)
    top = 0
    for sheet in sheets:
        page.paste(sheet, (0, top))
        top += sheet.height
    return page


def _strip(entry: Entry, width: int, side: int) -> Image.Image:
    """An entry's pictures, as high as the highest of them, and the caption."""
    small = [_within(picture, side) for picture in entry.pictures]
    height = max(picture.height for picture in small)
    strip = Image.new("RGB", (width, height + 26), PAPER)
    step = (
        max(picture.width for picture in small) + GAP
    )  # side by side, not each alone in its square
    for i, picture in enumerate(small):
        strip.paste(picture, (i * step, (height - picture.height) // 2))
    draw = ImageDraw.Draw(strip)
    used = min(width, len(small) * step - GAP)
    note = fitted(entry.note, used / 2, 13, draw) if entry.note else ""
    room = used - (draw.textlength(note, font(13)) + 12 if note else 0)
    draw.text((0, height + 6), fitted(entry.title, room, 14, draw), INK, font(14))
    draw.text((used, height + 7), note, FADED, font(13), anchor="ra")
    return strip


def _within(picture: Image.Image, side: int) -> Image.Image:
    scale = side / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.resize(size, Image.Resampling.LANCZOS)


def fitted(text: str, width: float, size: int, draw: ImageDraw.ImageDraw) -> str:
    """The text, shortened in its middle until it fits: a file's name tells most at its ends."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    if draw.textlength(text, font(size)) <= width:
        return text
    for keep in range(len(text) - 2, 1, -1):
        short = text[: (keep + 1) // 2] + "…" + text[len(text) - keep // 2 :]
        if draw.textlength(short, font(size)) <= width:
            return short
    return "…"


@functools.cache
def font(size: int) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which comes with matplotlib: the same letters on every machine, Greek and Cyrillic included."""
    import matplotlib

    return ImageFont.truetype(
        Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", size
    )
