"""What a search found, on one page: the question, the pictures, their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageOps

from .sheet import FADED, INK, MARGIN, PAPER, Entry, contact_sheet, fitted, font, stacked

SIDE, COLUMNS, FRAME = 200, 5, 5
ASKED = (0, 114, 178)  # the frame of the images that were asked with
LEAST = 640  # pixels wide: room for the question


class Shown(NamedTuple):
    picture: Image.Image | None  # None: its file is gone
    name: str
    score: float
    duplicates: int = 0


def found_sheet(
    results: Sequence[Shown],
    text: str = "",
    images: Sequence[Image.Image | None] = (),
    method: str = "",
) -> Image.Image:
    """The images that were asked with, framed, then the results, best first."""
    asked = " + ".join(
        ["this image" if len(images) == 1 else f"{len(images)} images"] * bool(images)
        + [text] * bool(text)
    )
    entries = [Entry([_square(image, ASKED)], "asked with") for image in images]
    for shown in results:
        entries.append(
            Entry([_square(shown.picture)], shown.name, note_of(shown.score, shown.duplicates))
        )
    page = (
        contact_sheet(entries, columns=COLUMNS, side=SIDE)
        if entries
        else Image.new("RGB", (LEAST, 1), PAPER)
    )
    told = f"{asked} · {method}" if results else f"{asked} · {method}: nothing found"
    return stacked([_heading(told, max(page.width, LEAST)), page])


def note_of(score: float, duplicates: int) -> str:
    """Short: a note has half of the width."""
    return f"{score:.3f} +{duplicates}" if duplicates else f"{score:.3f}"


def _heading(text: str, width: int) -> Image.Image:
    line = Image.new("RGB", (width, 50), PAPER)
    draw = ImageDraw.Draw(line)
    draw.text((MARGIN, 20), fitted(text, width - 2 * MARGIN, 18, draw), INK, font(18))
    return line


def _square(picture: Image.Image | None, frame: tuple[int, int, int] | None = None) -> Image.Image:
    """Fitted, so that lines stand under each other."""
    if picture is not None:
        inside = SIDE - 2 * FRAME if frame else SIDE
        small = ImageOps.contain(picture, (inside, inside), Image.Resampling.LANCZOS)
        return ImageOps.pad(
            ImageOps.expand(small, FRAME, frame) if frame else small, (SIDE, SIDE), color=PAPER
        )
    gone = Image.new("RGB", (SIDE, SIDE), (232, 230, 225))
    ImageDraw.Draw(gone).text((SIDE // 2, SIDE // 2), "missing", FADED, font(16), anchor="mm")
    return gone
