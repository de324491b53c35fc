"""Queries and the images retrieved for them, right and wrong ones framed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageOps

from ..data import BadImage, Dataset
from .blocks import Block, Panels, SearchPanel, SearchTile, picture_of
from .sheet import FADED, PAPER, SheetEntry, fit, grouped_sheet

RIGHT, WRONG = (0, 158, 115), (213, 60, 20)  # they differ in lightness for the colour-blind
SIDE, FRAME = 150, 6
PANEL_SIDE = 160  # pixels of a picture on the page


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
