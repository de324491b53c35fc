"""Queries and the images retrieved for them, right and wrong ones framed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from PIL import Image, ImageOps

from ..data import BadImage, Dataset
from .html.blocks import Block, Panels, SearchPanel, SearchTile
from .html.pictures import picture_of
from .sheet import FADED, PAPER, SheetEntry, contact_sheet, stacked

RIGHT, WRONG = (0, 158, 115), (213, 60, 20)  # they differ in lightness for the colour-blind
SIDE, FRAME = 150, 6
PANEL_SIDE = 160  # pixels of a picture on the page


class RetrievedImage(Protocol):
    @property
    def position(self) -> int: ...
    @property
    def label(self) -> str | None: ...
    @property
    def right(self) -> bool: ...


class RetrievalCase(Protocol):
    """A query of an evaluation and its neighbours, best first."""

    @property
    def group(self) -> str: ...
    @property
    def position(self) -> int: ...
    @property
    def file(self) -> str: ...
    @property
    def label(self) -> str | None: ...
    @property
    def map_at_r(self) -> float: ...
    @property
    def matches(self) -> int: ...
    @property
    def neighbours(self) -> Sequence[RetrievedImage]: ...


def retrieval_page(
    cases: Sequence[RetrievalCase], queries: Dataset, gallery: Dataset, heading: str
) -> Image.Image | None:
    """Draw one line per query: the query, then its nearest images, best first."""
    headings = {
        "best": f"{heading} · the best queries · green: right, red: wrong",
        "worst": "the worst queries",
    }
    sheets = []
    for group, title in headings.items():
        entries = [_entry(case, queries, gallery) for case in cases if case.group == group]
        if readable := [entry for entry in entries if entry is not None]:
            sheets.append(contact_sheet(readable, title, columns=1, side=SIDE))
    return stacked(sheets) if sheets else None


def retrieval_blocks(
    cases: Sequence[RetrievalCase], queries: Dataset, gallery: Dataset
) -> list[Block]:
    """Return the best and the worst queries, each with its nearest images."""
    blocks: list[Block] = []
    for group in ("best", "worst"):
        panels = [_panel(case, queries, gallery) for case in cases if case.group == group]
        if panels:
            blocks.append(Panels(f"Retrieval: the {group} queries", tuple(panels)))
    return blocks


def _note(case: RetrievalCase) -> str:
    return f"MAP@R {100 * case.map_at_r:.0f}, {case.matches} to find"


def _entry(case: RetrievalCase, queries: Dataset, gallery: Dataset) -> SheetEntry | None:
    query = _framed(queries, case.position, PAPER)
    if query is None:
        return None
    pictures = [query]
    for near in case.neighbours:
        picture = _framed(gallery, near.position, RIGHT if near.right else WRONG)
        pictures.append(picture or Image.new("RGB", (SIDE, SIDE), FADED))
    return SheetEntry(pictures, f"{case.label} · {Path(case.file).name}", _note(case))


def _panel(case: RetrievalCase, queries: Dataset, gallery: Dataset) -> SearchPanel:
    query = SearchTile(_encoded(queries, case.position), str(case.label))
    cells = [
        SearchTile(_encoded(gallery, near.position), str(near.label), near.right)
        for near in case.neighbours
    ]
    return SearchPanel(query, _note(case), tuple(cells))


def _framed(dataset: Dataset, position: int, colour: tuple[int, int, int]) -> Image.Image | None:
    """Return a square picture with a frame, None if the file is not readable any more."""
    try:
        photo = dataset.image(position)
    except BadImage:
        return None
    inside = SIDE - 2 * FRAME
    scale = inside / max(photo.size)
    size = (max(1, round(photo.width * scale)), max(1, round(photo.height * scale)))
    framed = ImageOps.expand(photo.resize(size, Image.Resampling.LANCZOS), FRAME, colour)
    return ImageOps.pad(framed, (SIDE, SIDE), color=PAPER)


def _encoded(dataset: Dataset, position: int) -> str:
    """Return a picture as a data URI, empty if the file is not readable any more."""
    try:
        return picture_of(dataset.image(position), PANEL_SIDE)
    except BadImage:
        return ""
