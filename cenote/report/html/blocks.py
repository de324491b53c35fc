"""What a page is made of: small frozen records of plain values, so that a page is JSON."""

from __future__ import annotations

from dataclasses import dataclass

Value = str | int | float | None  # of a cell; None is an empty one
Box = tuple[float, float, float, float]  # x0, y0, x1, y1 in shares of width and height, 0 to 1


@dataclass(frozen=True)
class Text:
    title: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class Head:
    name: str
    numeric: bool = False
    about: str = ""  # told to whoever points at it


@dataclass(frozen=True)
class Table:
    """Rows as given; a reader sorts them. `marked`: places of rows that matter most."""

    title: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Value, ...], ...]
    notes: tuple[str, ...] = ()
    marked: tuple[int, ...] = ()


@dataclass(frozen=True)
class Point:
    name: str
    x: float
    y: float
    spread: float = 0.0  # of y, to both sides
    group: str = ""
    best: bool = False


@dataclass(frozen=True)
class Scatter:
    """`x` and `y` name the axes."""

    title: str
    x: str
    y: str
    points: tuple[Point, ...]
    log_x: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Map:
    name: str
    values: tuple[tuple[float, ...], ...]  # rows from the top, 0 to 1; empty: there is none
    note: str = ""


@dataclass(frozen=True)
class Photo:
    picture: str  # a data URI, as all pictures here
    caption: str
    maps: tuple[Map, ...]


@dataclass(frozen=True)
class Maps:
    """Where each method looks in the same photographs: a row each."""

    title: str
    photos: tuple[Photo, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    picture: str
    truth: tuple[Box, ...]
    found: tuple[Box, ...]
    caption: str
    score: float | None = None  # IoU, 0 to 1


@dataclass(frozen=True)
class Boxes:
    title: str
    cases: tuple[Case, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bar:
    name: str
    value: float
    spread: float | None = None
    group: str = ""


@dataclass(frozen=True)
class Bars:
    """`baseline` is a line through all bars: its name and value."""

    title: str
    unit: str
    bars: tuple[Bar, ...]
    notes: tuple[str, ...] = ()
    baseline: Bar | None = None


@dataclass(frozen=True)
class Cell:
    picture: str  # empty: the file is gone
    caption: str
    right: bool | None = None  # None: nobody knows


@dataclass(frozen=True)
class Panel:
    """A question, in words or with a picture, and what was found for it, best first."""

    query: Cell | None
    text: str
    results: tuple[Cell, ...]


@dataclass(frozen=True)
class Panels:
    title: str
    rows: tuple[Panel, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture:
    title: str
    picture: str
    alt: str
    notes: tuple[str, ...] = ()


Block = Text | Table | Scatter | Maps | Boxes | Bars | Panels | Picture
KINDS: dict[str, type[Block]] = {
    kind.__name__.lower(): kind
    for kind in (Text, Table, Scatter, Maps, Boxes, Bars, Panels, Picture)
}
