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
    entries = [SheetEntry([_square(image, FRAME)], "query") for image in images]
    for result in results:
        note = score_note(result.score, result.duplicates)
        entries.append(SheetEntry([_square(result.picture)], result.name, note))
    if entries:
        page = contact_sheet(entries, columns=COLUMNS, side=SIDE)
    else:
        page = Image.new("RGB", (MIN_WIDTH, 1), PAPER)
    shown = {0: "", 1: "this image"}.get(len(images), f"{len(images)} images")
    heading = f"{' + '.join(filter(None, [shown, text]))} · {method}"
    if not results:
        heading += ": nothing found"
    return stacked([_draw_heading(heading, max(page.width, MIN_WIDTH)), page])


def score_note(score: float, duplicates: int) -> str:
    """Return the score and the number of duplicates, short enough for half of the width."""
    return f"{score:.3f}" + f" +{duplicates}" * bool(duplicates)


def _draw_heading(text: str, width: int) -> Image.Image:
    line = Image.new("RGB", (width, 50), PAPER)
    draw = ImageDraw.Draw(line)
    draw.text((MARGIN, 20), shorten(text, width - 2 * MARGIN, 18, draw), INK, font(18))
    return line


def _square(picture: Image.Image | None, frame: int = 0) -> Image.Image:
    """Fit a picture and a frame of this width into a square; None becomes a placeholder."""
    if picture is None:
        missing = Image.new("RGB", (SIDE, SIDE), (232, 230, 225))
        centre = (SIDE // 2, SIDE // 2)
        ImageDraw.Draw(missing).text(centre, "missing", FADED, font(16), anchor="mm")
        return missing
    inside = SIDE - 2 * frame
    small = ImageOps.contain(picture, (inside, inside), Image.Resampling.LANCZOS)
    framed = ImageOps.expand(small, frame, QUERY_COLOUR)
    return ImageOps.pad(framed, (SIDE, SIDE), color=PAPER)
