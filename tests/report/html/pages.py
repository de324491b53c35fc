"""A page with a block of every kind, and what a parser sees of it."""

from html.parser import HTMLParser
from typing import Any

import numpy as np
from PIL import Image

from cenote.report.blocks import (
    Bar,
    Bars,
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
    picture_of,
)

HOSTILE = """<script>alert(1)</script>"'&<img src=x onerror=alert(2)>]]>--></style>"""
VOID = {"img", "input", "br", "meta", "link"}


def photo(width: int = 96, height: int = 64, seed: int = 0) -> Image.Image:
    """Smooth colours with a bright square."""
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([90 + 60 * np.sin(x / 17 + seed), 110 + 50 * np.cos(y / 13), 130 + 0 * x], -1)
    pixels[height // 4 : height // 2, width // 4 : width // 2] = 235
    return Image.fromarray(pixels.astype(np.uint8))


def hill(rows: int, columns: int, y: float, x: float) -> tuple[tuple[float, ...], ...]:
    """A map that is highest at (y, x), in shares of its height and width."""
    v, u = np.mgrid[0:rows, 0:columns]
    distance = ((v + 0.5) / rows - y) ** 2 + ((u + 0.5) / columns - x) ** 2
    return tuple(tuple(float(value) for value in row) for row in np.exp(-8 * distance).round(3))


def whole_page(name: str = "dog") -> Page:
    """Every kind of block; `name` wherever a user's word can stand."""
    picture = picture_of(photo())
    heads = (
        TableColumn(name),
        TableColumn("accuracy", True, name),
        TableColumn("", help="marks"),
        TableColumn("params", True),
    )
    rows = (
        (name, "71.5 ± 0.4", "=", "1.2M"),
        ("b", "9.25", "", "900"),
        ("c", None, "*", 12_345),
        ("a", 80.5, "", "3k"),
    )
    points = tuple(
        Point(f"{name} {i}", 10.0 ** (i % 4 + 1), 50 + i, 1.5, f"group {i % 3}", i == 4)
        for i in range(9)
    )
    maps = (
        MapTile(name, hill(7, 7, 0.2, 0.2), "82% · own map"),
        MapTile("gap", hill(7, 9, 0.8, 0.8)),
        MapTile("none", ()),
    )
    seen = tuple(PhotoWithMaps(picture_of(photo(seed=i)), f"{name} {i}", maps) for i in range(2))
    box, other = (0.25, 0.25, 0.5, 0.5), (0.3, 0.2, 0.6, 0.55)
    cases = (
        PhotoWithBoxes(picture, (box,), (other,), name, 0.5),
        PhotoWithBoxes(picture, (), (), "empty"),
    )
    bars = (Bar(name, 71.5, name), Bar("Mixed-Rand", 40.0, "mixed"), Bar("No-FG", 3.0))
    cells = (
        SearchTile(picture, name, True),
        SearchTile(picture, "cat", False),
        SearchTile("", "gone"),
    )
    panels = (
        SearchPanel(SearchTile(picture, name), f"as a {name}", cells),
        SearchPanel(SearchTile(picture, "lone"), "", ()),
    )
    blocks = (
        Text(name, (name, "a second paragraph")),
        Table(name, heads, rows, (name,), (0,)),
        Scatter("Accuracy against parameters", f"x {name}", f"y {name}", points, True, (name,)),
        Maps("Where each looks", seen, (name,)),
        Boxes("Boxes against truth", cases, (name,)),
        Bars("On other backgrounds", "%", bars, (name,), Bar(name, 80.0)),
        Panels("Retrieval", panels, (name,)),
        Picture("A picture", picture, name),
    )
    return Page(
        f"Page {name}",
        f"Lead {name}",
        blocks,
        f"cenote tournament '{name}'",
        75.4,
        {"cenote": name},
    )


class Parsed(HTMLParser):
    """Tags with their attributes, the words of each, and whether all that opens closes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[tuple[str, str]] = []  # innermost tag, text
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append((self.open[-1] if self.open else "", data))

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]

    def values(self, attribute: str) -> list[str]:
        return [
            value for _, attributes in self.tags if (value := attributes.get(attribute)) is not None
        ]

    def text(self, *without: str) -> str:
        return "".join(words for tag, words in self.words if tag not in without)
