"""Pictures of retrieval: queries with right and wrong images, and the results of one search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageOps

from ..data import BadImage, Dataset
from .blocks import Block, Panels, SearchPanel, SearchTile, picture_of
from .sheet import (
    FADED,
    INK,
    MARGIN,
    PAPER,
    SheetEntry,
    contact_sheet,
    fit,
    font,
    grouped_sheet,
    shorten,
    stacked,
)

RIGHT, WRONG = (0, 158, 115), (213, 60, 20)  # they differ in lightness for the colour-blind
SIDE, FRAME = 150, 6
PANEL_SIDE = 160  # pixels of a picture on the page
FOUND_SIDE, FOUND_FRAME, FOUND_COLUMNS = 200, 5, 5  # of the results of one search
QUERY_COLOUR = (0, 114, 178)  # of the frame around images of the query
MIN_WIDTH = 640  # pixels for the heading


@dataclass(frozen=True)
class Neighbour:
    position: int  # in the gallery, or among the queries if they are searched themselves
    file: str
    label: str | None
    right: bool


@dataclass(frozen=True)
class QueryCase:
    """A query and its nearest images, best first."""

    group: str  # best or worst
    position: int
    file: str
    label: str | None
    map_at_r: float
    matches: int
    neighbours: list[Neighbour]


def retrieval_page(
    cases: Sequence[QueryCase], queries: Dataset, gallery: Dataset, heading: str
) -> Image.Image | None:
    """Draw one line per query: the query, then its nearest images, best first."""
    headings = {
        "best": f"{heading} · the best queries · green: right, red: wrong",
        "worst": "the worst queries",
    }
    groups: dict[str, list[SheetEntry]] = {title: [] for title in headings.values()}
    for case in cases:
        query = _framed(queries, case.position, PAPER)
        if query is not None:
            pictures = [query]
            for near in case.neighbours:
                picture = _framed(gallery, near.position, RIGHT if near.right else WRONG)
                pictures.append(picture or Image.new("RGB", (SIDE, SIDE), FADED))
            entry = SheetEntry(pictures, f"{case.label} · {Path(case.file).name}", _note(case))
            groups[headings[case.group]].append(entry)
    return grouped_sheet(groups, columns=1, side=SIDE)


def retrieval_blocks(cases: Sequence[QueryCase], queries: Dataset, gallery: Dataset) -> list[Block]:
    """Return the best and the worst queries, each with its nearest images."""
    blocks: list[Block] = []
    for group in ("best", "worst"):
        panels = []
        for case in cases:
            if case.group == group:
                query = SearchTile(_encoded(queries, case.position), str(case.label))
                cells = [
                    SearchTile(_encoded(gallery, near.position), str(near.label), near.right)
                    for near in case.neighbours
                ]
                panels.append(SearchPanel(query, _note(case), tuple(cells)))
        if panels:
            blocks.append(Panels(f"Retrieval: the {group} queries", tuple(panels)))
    return blocks


def _note(case: QueryCase) -> str:
    return f"MAP@R {100 * case.map_at_r:.0f}, {case.matches} to find"


def _framed(dataset: Dataset, position: int, colour: tuple[int, int, int]) -> Image.Image | None:
    """Return a square picture with a frame, None if the file is not readable any more."""
    try:
        photo = fit(dataset.image(position), SIDE - 2 * FRAME)
    except BadImage:
        return None
    return ImageOps.pad(ImageOps.expand(photo, FRAME, colour), (SIDE, SIDE), color=PAPER)


def _encoded(dataset: Dataset, position: int) -> str:
    """Return a picture as a data URI, empty if the file is not readable any more."""
    try:
        return picture_of(dataset.image(position), PANEL_SIDE)
    except BadImage:
        return ""


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
    entries = [SheetEntry([_square(image, FOUND_FRAME)], "query") for image in images]
    for result in results:
        note = score_note(result.score, result.duplicates)
        entries.append(SheetEntry([_square(result.picture)], result.name, note))
    if entries:
        page = contact_sheet(entries, columns=FOUND_COLUMNS, side=FOUND_SIDE)
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
        missing = Image.new("RGB", (FOUND_SIDE, FOUND_SIDE), (232, 230, 225))
        centre = (FOUND_SIDE // 2, FOUND_SIDE // 2)
        ImageDraw.Draw(missing).text(centre, "missing", FADED, font(16), anchor="mm")
        return missing
    inside = FOUND_SIDE - 2 * frame
    small = ImageOps.contain(picture, (inside, inside), Image.Resampling.LANCZOS)
    framed = ImageOps.expand(small, frame, QUERY_COLOUR)
    return ImageOps.pad(framed, (FOUND_SIDE, FOUND_SIDE), color=PAPER)
