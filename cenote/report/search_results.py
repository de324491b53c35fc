"""Search results on one page: the query, the pictures and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageOps

from .sheet import FADED, INK, MARGIN, PAPER, SheetEntry, contact_sheet, font, shorten, stacked

SIDE, COLUMNS, FRAME = 200, 5, 5
QUERY_COLOUR = (0, 114, 178)  # of the frame around images of the query
MIN_WIDTH = 640  # pixels for the heading


class FoundImage(NamedTuple):
    picture: Image.Image | None  # None: the file is missing
    name: str
    score: float
    duplicates: int = 0


def found_sheet(
    results: Sequence[FoundImage],
    text: str = "",
    images: Sequence[Image.Image | None] = (),
    method: str = "",
) -> Image.Image:
    """Draw the images of the query, framed, then the results, best first."""
    entries = [SheetEntry([_square(image, QUERY_COLOUR)], "query") for image in images]
    for result in results:
        note = score_note(result.score, result.duplicates)
        entries.append(SheetEntry([_square(result.picture)], result.name, note))
    if entries:
        page = contact_sheet(entries, columns=COLUMNS, side=SIDE)
    else:
        page = Image.new("RGB", (MIN_WIDTH, 1), PAPER)
    query = [text] if text else []
    if images:
        query.insert(0, "this image" if len(images) == 1 else f"{len(images)} images")
    heading = f"{' + '.join(query)} · {method}"
    if not results:
        heading += ": nothing found"
    return stacked([_draw_heading(heading, max(page.width, MIN_WIDTH)), page])


def score_note(score: float, duplicates: int) -> str:
    """Return the score and the number of duplicates, short enough for half of the width."""
    return f"{score:.3f} +{duplicates}" if duplicates else f"{score:.3f}"


def _draw_heading(text: str, width: int) -> Image.Image:
    line = Image.new("RGB", (width, 50), PAPER)
    draw = ImageDraw.Draw(line)
    draw.text((MARGIN, 20), shorten(text, width - 2 * MARGIN, 18, draw), INK, font(18))
    return line


def _square(picture: Image.Image | None, frame: tuple[int, int, int] | None = None) -> Image.Image:
    """Fit a picture into a square, so that captions are aligned; None becomes a placeholder."""
    if picture is None:
        missing = Image.new("RGB", (SIDE, SIDE), (232, 230, 225))
        centre = (SIDE // 2, SIDE // 2)
        ImageDraw.Draw(missing).text(centre, "missing", FADED, font(16), anchor="mm")
        return missing
    inside = SIDE - 2 * FRAME if frame else SIDE
    small = ImageOps.contain(picture, (inside, inside), Image.Resampling.LANCZOS)
    if frame:
        small = ImageOps.expand(small, FRAME, frame)
    return ImageOps.pad(small, (SIDE, SIDE), color=PAPER)
