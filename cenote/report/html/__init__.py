"""The HTML report: one self-contained page of typed blocks, and the same blocks as page.json."""

from .blocks import (
    Bar,
    Bars,
    Block,
    Boxes,
    Maps,
    MapTile,
    Page,
    Panels,
    PhotoWithBoxes,
    PhotoWithMaps,
    Picture,
    Point,
    Scatter,
    SearchPanel,
    SearchTile,
    Table,
    TableColumn,
    Text,
    made_with,
)
from .page import read_page, write_page
from .pictures import picture_of
from .render import render

__all__ = [
    "Bar",
    "Bars",
    "Block",
    "Boxes",
    "MapTile",
    "Maps",
    "Page",
    "Panels",
    "PhotoWithBoxes",
    "PhotoWithMaps",
    "Picture",
    "Point",
    "Scatter",
    "SearchPanel",
    "SearchTile",
    "Table",
    "TableColumn",
    "Text",
    "made_with",
    "picture_of",
    "read_page",
    "render",
    "write_page",
]
