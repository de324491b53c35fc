"""The report: one self-contained page from blocks of plain values, and page.json behind it."""

from .blocks import (
    Bar,
    Bars,
    Block,
    Boxes,
    Case,
    Cell,
    Head,
    Map,
    Maps,
    Panel,
    Panels,
    Photo,
    Picture,
    Point,
    Scatter,
    Table,
    Text,
)
from .files import read_page, write_page
from .page import Page, made_with
from .pictures import picture_of
from .render import render

__all__ = [
    "Bar",
    "Bars",
    "Block",
    "Boxes",
    "Case",
    "Cell",
    "Head",
    "Map",
    "Maps",
    "Page",
    "Panel",
    "Panels",
    "Photo",
    "Picture",
    "Point",
    "Scatter",
    "Table",
    "Text",
    "made_with",
    "picture_of",
    "read_page",
    "render",
    "write_page",
]
