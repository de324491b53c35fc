"""A page of a report and its blocks: frozen dataclasses of plain values, written as JSON."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Literal

from pydantic import Field

from ... import __version__
from ..table import CellValue, Column, Row

RelativeBox = tuple[float, float, float, float]  # x0, y0, x1, y1 as shares of width and height


@dataclass(frozen=True)
class Text:
    title: str
    paragraphs: tuple[str, ...]
    kind: Literal["text"] = "text"


@dataclass(frozen=True)
class TableColumn:
    name: str
    numeric: bool = False
    help: str = ""  # shown as a tooltip


@dataclass(frozen=True)
class Table:
    """A table that a reader can sort. `highlighted`: indices of the most important rows."""

    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[CellValue, ...], ...]
    notes: tuple[str, ...] = ()
    highlighted: tuple[int, ...] = ()
    kind: Literal["table"] = "table"


def declared_table(
    title: str,
    columns: Sequence[Column[Row]],
    rows: Sequence[Row],
    notes: Sequence[str] = (),
    highlighted: Sequence[int] = (),
) -> Table:
    """Return the block of a table that is declared as a list of columns."""
    heads = tuple(TableColumn(column.name, column.numeric, column.help) for column in columns)
    cells = tuple(tuple(column.text(row) or None for column in columns) for row in rows)
    return Table(title, heads, cells, tuple(notes), tuple(highlighted))


@dataclass(frozen=True)
class Point:
    name: str
    x: float
    y: float
    deviation: float = 0.0  # of y, drawn to both sides
    group: str = ""
    best: bool = False


@dataclass(frozen=True)
class Scatter:
    title: str
    x_label: str
    y_label: str
    points: tuple[Point, ...]
    log_x: bool = True
    notes: tuple[str, ...] = ()
    kind: Literal["scatter"] = "scatter"


@dataclass(frozen=True)
class MapTile:
    name: str
    values: tuple[tuple[float, ...], ...]  # rows from the top, 0 to 1; empty without a map
    note: str = ""


@dataclass(frozen=True)
class PhotoWithMaps:
    picture: str  # a data URI, like all pictures of a page
    caption: str
    maps: tuple[MapTile, ...]


@dataclass(frozen=True)
class Maps:
    """Attention maps of several methods on the same photographs, one row for each photograph."""

    title: str
    photos: tuple[PhotoWithMaps, ...]
    notes: tuple[str, ...] = ()
    kind: Literal["maps"] = "maps"


@dataclass(frozen=True)
class PhotoWithBoxes:
    picture: str
    truth: tuple[RelativeBox, ...]
    predicted: tuple[RelativeBox, ...]
    caption: str
    iou: float | None = None  # 0 to 1


@dataclass(frozen=True)
class Boxes:
    title: str
    photos: tuple[PhotoWithBoxes, ...]
    notes: tuple[str, ...] = ()
    kind: Literal["boxes"] = "boxes"


@dataclass(frozen=True)
class Bar:
    name: str
    value: float
    deviation: float | None = None
    group: str = ""


@dataclass(frozen=True)
class Bars:
    """Horizontal bars; `baseline` is a line through all of them."""

    title: str
    unit: str
    bars: tuple[Bar, ...]
    notes: tuple[str, ...] = ()
    baseline: Bar | None = None
    kind: Literal["bars"] = "bars"


@dataclass(frozen=True)
class SearchTile:
    picture: str  # empty if the file is missing
    caption: str
    correct: bool | None = None  # None without ground truth


@dataclass(frozen=True)
class SearchPanel:
    """A query by image, by text or by both, and its results, best first."""

    query: SearchTile | None
    text: str
    results: tuple[SearchTile, ...]


@dataclass(frozen=True)
class Panels:
    title: str
    rows: tuple[SearchPanel, ...]
    notes: tuple[str, ...] = ()
    kind: Literal["panels"] = "panels"


@dataclass(frozen=True)
class Picture:
    title: str
    picture: str
    alt: str
    notes: tuple[str, ...] = ()
    kind: Literal["picture"] = "picture"


Block = Annotated[
    Text | Table | Scatter | Maps | Boxes | Bars | Panels | Picture, Field(discriminator="kind")
]


def made_with() -> dict[str, str]:
    """Return the versions and the machine behind a number."""
    import torch

    try:
        timm = version("timm")
    except PackageNotFoundError:  # a checkout on the path
        timm = "unknown"
    return {
        "cenote": __version__,
        "torch": torch.__version__,
        "timm": timm,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "threads": str(torch.get_num_threads()),
    }


@dataclass(frozen=True)
class Page:
    title: str
    lead: str  # one sentence below the title
    blocks: tuple[Block, ...]
    command: str = ""  # reproduces the page
    seconds: float | None = None
    made_with: dict[str, str] = field(default_factory=made_with)
