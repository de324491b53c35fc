"""Contact sheets: many pictures on one page, with captions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from PIL import Image, ImageDraw, ImageFont

from ..data import BadImage, Dataset, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER, INK, FADED = (250, 249, 246), (28, 28, 30), (120, 118, 114)
GAP, MARGIN = 6, 28  # pixels between the pictures of an entry, and around entries
ENTRIES_PER_SHEET = 40
THUMBNAIL = 320  # pixels: pictures of a contact sheet are kept in memory until it is full
Case = TypeVar("Case")


class SheetEntry(NamedTuple):
    pictures: Sequence[Image.Image]
    title: str
    note: str = ""  # smaller, right-aligned
    labels: Sequence[str] = ()  # below each picture


def contact_sheet(
    entries: Sequence[SheetEntry], heading: str = "", columns: int = 0, side: int = 220
) -> Image.Image:
    """Draw `columns` entries in a row; every picture fits into a square of `side` pixels."""
    pictures = max(len(entry.pictures) for entry in entries)
    columns = min(len(entries), columns or max(1, 6 // pictures))
    width = pictures * side + (pictures - 1) * GAP
    strips = [_draw_entry(entry, width, side) for entry in entries]
    rows = [strips[i : i + columns] for i in range(0, len(strips), columns)]
    heights = [max(strip.height for strip in row) for row in rows]
    top = MARGIN + 34 * bool(heading)
    size = (MARGIN + columns * (width + MARGIN), top + sum(heights) + MARGIN * len(rows))
    page = Image.new("RGB", size, PAPER)
    if heading:
        draw = ImageDraw.Draw(page)
        text = shorten(heading, page.width - 2 * MARGIN, 18, draw)
        draw.text((MARGIN, MARGIN - 8), text, INK, font(18))
    for row, height in zip(rows, heights, strict=True):
        for i, strip in enumerate(row):
            page.paste(strip, (MARGIN + i * (width + MARGIN), top))
        top += height + MARGIN
    return page


def grouped_sheet(
    groups: Mapping[str, Sequence[SheetEntry]], columns: int, side: int = 220
) -> Image.Image | None:
    """Draw a contact sheet for each heading, below each other; None without any entry."""
    sheets = [
        contact_sheet(entries, heading, columns, side)
        for heading, entries in groups.items()
        if entries
    ]
    return stacked(sheets) if sheets else None


def stacked(sheets: Sequence[Image.Image]) -> Image.Image:
    """Put pages below each other."""
    page = Image.new("RGB", (max(s.width for s in sheets), sum(s.height for s in sheets)), PAPER)
    top = 0
    for sheet in sheets:
        page.paste(sheet, (0, top))
        top += sheet.height
    return page


def _draw_entry(entry: SheetEntry, width: int, side: int) -> Image.Image:
    small = [fit(picture, side) for picture in entry.pictures]
    height = max(picture.height for picture in small)
    strip = Image.new("RGB", (width, height + 26 + 20 * bool(entry.labels)), PAPER)
    step = max(picture.width for picture in small) + GAP
    for i, picture in enumerate(small):
        strip.paste(picture, (i * step, (height - picture.height) // 2))
    draw = ImageDraw.Draw(strip)
    for i, label in enumerate(entry.labels):
        draw.text((i * step, height + 4), shorten(label, step - GAP, 13, draw), FADED, font(13))
    height += 20 * bool(entry.labels)
    available = min(width, len(small) * step - GAP)
    title_width: float = available
    if entry.note:
        note = shorten(entry.note, available / 2, 13, draw)
        draw.text((available, height + 7), note, FADED, font(13), anchor="ra")
        title_width -= draw.textlength(note, font(13)) + 12
    draw.text((0, height + 6), shorten(entry.title, title_width, 14, draw), INK, font(14))
    return strip


def shorten(text: str, width: float, size: int, draw: ImageDraw.ImageDraw) -> str:
    """Replace the middle of a text by an ellipsis until it fits into `width` pixels."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    if draw.textlength(text, font(size)) <= width:
        return text
    for length in range(len(text) - 2, 1, -1):
        short = text[: (length + 1) // 2] + "…" + text[len(text) - length // 2 :]
        if draw.textlength(short, font(size)) <= width:
            return short
    return "…"


@functools.cache
def font(size: int) -> ImageFont.FreeTypeFont:
    """Load DejaVu Sans, which comes with matplotlib: the same letters on every machine."""
    import matplotlib

    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(path, size)


def fit(picture: Image.Image, side: int, least: int = 1) -> Image.Image:
    """Resize a picture so that its longer side has `side` pixels and the other at least `least`."""
    scale = side / max(picture.size)
    size = max(least, round(picture.width * scale)), max(least, round(picture.height * scale))
    return picture.resize(size, Image.Resampling.LANCZOS)


def thumbnail(picture: Image.Image) -> Image.Image:
    """Resize a picture for a contact sheet; a very narrow one, which would be a line, is stretched."""
    return fit(picture, THUMBNAIL, THUMBNAIL // 8)


def save_picture(picture: Image.Image | Figure, path: Path) -> None:
    """Save a PIL image or a matplotlib figure."""
    with write_atomically(path) as temporary:
        if isinstance(picture, Image.Image):
            picture.save(temporary, quality=92, subsampling=0, comment="written by cenote")
        else:
            picture.savefig(temporary, dpi=110)


def first_readable(dataset: Dataset, positions: Iterable[int]) -> int | None:
    """Return the first position whose image can be read, for an example picture."""
    for position in positions:
        with suppress(BadImage):
            dataset.image(position)
            return position
    return None


def readable(
    cases: Iterable[Case], dataset: Dataset, position: Callable[[Case], int]
) -> list[tuple[Case, Image.Image]]:
    """Return cases with their images, without those that cannot be read any more."""
    pairs = []
    for case in cases:
        with suppress(BadImage):
            pairs.append((case, dataset.image(position(case))))
    return pairs


class SheetWriter:
    """Write contact sheets of at most 40 entries each, as the entries come."""

    def __init__(self, folder: Path, heading: str, first: str = "contact_sheet_1.jpg") -> None:
        self.folder, self.heading, self.first = folder, heading, first
        self.entries: list[SheetEntry] = []
        self.names: list[str] = []

    def add(self, entry: SheetEntry) -> None:
        self.entries.append(entry)
        if len(self.entries) == ENTRIES_PER_SHEET:
            self.save()

    def save(self) -> None:
        """Write the sheet, if it has any entries."""
        if self.entries:
            number = len(self.names) + 1
            self.names.append(f"contact_sheet_{number}.jpg" if number > 1 else self.first)
            sheet = contact_sheet(self.entries, self.heading)
            save_picture(sheet, self.folder / self.names[-1])
            self.entries = []
