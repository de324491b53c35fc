"""Render a page with Jinja2 as one HTML file that contains its style, script and pictures.

The same page is written as page.json, from which it can be read back.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache, lru_cache, partial
from html import escape
from importlib.resources import files
from io import BytesIO, StringIO
from pathlib import Path
from typing import Protocol

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from ..data.checks import errors_in
from ..data.files import write_atomically
from .blocks import Bars, Block, Page, RelativeBox, Scatter, Table, TableColumn, data_uri
from .plots import COLOURS, FADED, INK, PAPER, draw_scatter
from .table import CellValue

HTML, JSON = "index.html", "page.json"
DATA_URI = re.compile(r"data:image/(?:jpeg|png|webp);base64,[A-Za-z0-9+/]+={0,2}")
NUMBER = re.compile(r"[-+−]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?")
UNITS = {"k": 1e3, "M": 1e6, "G": 1e9}
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # not allowed in HTML
MAX_TILES = 9  # in a row
MAX_NOTES = 5  # unreadable files that are named
VEIL_COLOUR = (3, 20, 30)  # dark water
# matplotlib's inferno at nine places, blended by an SVG filter: red, green and blue.
INFERNO = (
    "0.001 0.122 0.342 0.542 0.736 0.894 0.978 0.965 0.988",
    "0 0.047 0.062 0.135 0.216 0.353 0.558 0.795 0.998",
    "0.014 0.283 0.429 0.415 0.33 0.193 0.035 0.23 0.645",
)
# Colours of a plot become those of the page's theme.
THEME = {colour: f"var(--g{i % 8})" for i, colour in enumerate(COLOURS)}
THEME |= {INK: "var(--ink)", FADED: "var(--soft)", PAPER: "var(--paper)"}


class ProtocolReport(Protocol):
    """What the page of an evaluation needs of a protocol's report."""

    unreadable: list[str]

    def figures(self) -> Sequence[tuple[str, float | None, str]]: ...  # name, value, unit


def write_page(folder: Path, page: Page) -> list[str]:
    """Write index.html and page.json, each atomically; return their names."""
    # NaN and infinity, which JSON does not have, become null.
    values = json.loads(json.dumps(asdict(page)), parse_constant=lambda name: None)
    for name, text in ((JSON, json.dumps(values, ensure_ascii=False)), (HTML, render(page))):
        with write_atomically(folder / name) as temporary:
            # A file name can have bytes that are not text; each becomes a question mark.
            temporary.write_bytes(text.encode("utf-8", "replace"))
    return [HTML, JSON]


def read_page(folder: Path) -> Page:
    """Read the page that `write_page` wrote."""
    from pydantic import TypeAdapter

    with errors_in(folder / JSON):
        return TypeAdapter(Page).validate_json((folder / JSON).read_bytes(), strict=True)


def evaluation_page(
    title: str,
    lead: str,
    reports: Mapping[str, ProtocolReport],
    blocks: Mapping[str, Sequence[Block]],
    command: str,
    seconds: float,
) -> Page:
    """Return the page of `cenote evaluate`: all figures at a glance, then pictures and details."""
    rows = []
    for protocol, report in reports.items():
        for name, value, unit in report.figures():
            rows.append((protocol, name, None if value is None else f"{value:.1f}", unit))
    messages = list(dict.fromkeys(m for report in reports.values() for m in report.unreadable))
    notes = [f"left out: {message}" for message in messages[:MAX_NOTES]]
    if len(messages) > MAX_NOTES:
        notes.append(f"left out: {len(messages) - MAX_NOTES} more")
    names = ("protocol", "figure", "value", "of")
    columns = tuple(TableColumn(name, numeric=name == "value") for name in names)
    glance = Table("At a glance", columns, tuple(rows), tuple(notes))
    details = [block for name in reports for block in blocks.get(name, ())]
    return Page(title, lead, (glance, *details), command, seconds)


def render(page: Page) -> str:
    """Return the HTML of a page."""
    facts = dict(page.made_with)
    if page.seconds is not None and math.isfinite(page.seconds):
        facts = {"time": format_duration(page.seconds), **facts}
    sections = [(section_name(i, block.title), block) for i, block in enumerate(page.blocks, 1)]
    template = _environment().get_template("page.html")
    html = template.render(page=page, sections=sections, facts=facts)
    return CONTROL_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", html)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cenote.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "cell": format_cell,
        "sort_key": sort_key,
        "svg_rect": svg_rect,
        "veil": veil_of,
        "brightest": brightest,
    }
    environment.globals |= {
        "zip": partial(zip, strict=True),
        "source": source,
        "picture_size": picture_size,
        "scatter_svg": scatter_svg,
        "scatter_table": scatter_table,
        "full_scale": full_scale,
        "ceil": math.ceil,
        "max_tiles": MAX_TILES,
        "inferno": list(zip("RGB", INFERNO, strict=True)),
    }
    return environment


def source(name: str) -> Markup:
    """Return a file of the package as it is: the style sheet or the script."""
    return Markup((files("cenote.report") / "templates" / name).read_text(encoding="utf-8"))


def section_name(number: int, title: str) -> str:
    """Return a unique anchor, made of the words of the title."""
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40]
    return f"part-{number}-{words}".rstrip("-")


def format_duration(seconds: float) -> str:
    """Return 75 as '1 min 15 s'."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s"


def format_cell(value: CellValue) -> str:
    """Format a cell of a table; strings are shown as they are."""
    if isinstance(value, float) and abs(value) < 1e4:
        return f"{value:.4g}"
    if isinstance(value, int | float):
        return f"{value:,.0f}"
    return value or ""


def sort_key(value: CellValue) -> str | None:
    """Return the number a cell is sorted by ('91.2 ± 0.4': 91.2, '1.2M': 1200000); None is last."""
    if isinstance(value, int | float):
        return repr(float(value))
    match = NUMBER.search(value or "")
    if value is None or match is None:
        return None
    number = float(match[0].replace(",", "").replace("−", "-"))
    return repr(number * UNITS.get(value[match.end() : match.end() + 1], 1.0))


def scatter_table(block: Scatter) -> Table:
    """Return the numbers of a plot as a table."""
    names = ("name", "group", block.x_label, block.y_label, "±")
    columns = tuple(TableColumn(name, numeric=i > 1) for i, name in enumerate(names))
    rows = tuple((p.name, p.group, p.x, p.y, p.deviation or None) for p in block.points)
    return Table(f"{block.title}, as numbers", columns, rows)


def scatter_svg(block: Scatter) -> Markup:
    """Draw a scatter plot in the colours of the page; a tooltip names each point."""
    import matplotlib

    buffer, figure = StringIO(), draw_scatter(block)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": block.title}):
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=no_metadata, transparent=True)
    svg = buffer.getvalue().partition("<svg")[2].partition(">")[2]
    for colour, variable in THEME.items():
        svg = svg.replace(colour, variable)
    svg = re.sub(r"font-family: [^;\"]*;?|(?<=font: )([^;\"]*?[\d.]+px) [^;\"]*", r"\1", svg)

    def title(match: re.Match[str]) -> str:
        point = block.points[int(match[1])]
        return f"<g><title>{escape(point.name)}: {point.y:.4g} ± {point.deviation:.2g}</title>"

    svg = re.sub(r'<g id="point-(\d+)">', title, svg)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    width, height = figure.get_size_inches() * 72
    name = f"{block.title}: {len(block.points)} points. The table below has the same numbers."
    view = f'viewBox="0 0 {width:g} {height:g}" role="img" class="plot" aria-label="{escape(name)}"'
    return Markup(f"<svg {view}>{svg}")


def full_scale(block: Bars) -> float:
    """Return the value of a full bar: 100 for percentages, else the largest value."""
    bars = [*block.bars, *filter(None, [block.baseline])]
    largest = max((bar.value for bar in bars), default=1.0)
    return 100.0 if block.unit == "%" and largest <= 100 else largest or 1.0


def svg_rect(box: RelativeBox) -> Markup:
    """Return the attributes of an SVG rectangle in percent, clipped to the picture."""
    x0, y0, x1, y1 = (100 * min(max(v, 0.0), 1.0) for v in box)
    width, height = max(0.0, x1 - x0), max(0.0, y1 - y0)
    return Markup(f'x="{x0:.6g}" y="{y0:.6g}" width="{width:.6g}" height="{height:.6g}"')


@lru_cache(512)
def picture_size(uri: str) -> tuple[int, int]:
    """Return width and height of a data URI; anything else is refused: a page makes no requests."""
    if not DATA_URI.fullmatch(uri):
        raise ValueError(f"a picture of a report is a data URI (see picture_of), not '{uri[:40]}'")
    with Image.open(BytesIO(b64decode(uri.partition(",")[2]))) as image:
        return image.size


def veil_of(values: Sequence[Sequence[float]]) -> str:
    """Return a map as a dark PNG, one pixel for each cell, transparent where the map is 1.

    The browser scales it smoothly; the alpha channel alone carries the map, so that a filter of
    the page can threshold or colour it.
    """
    visible = np.clip(np.nan_to_num(np.asarray(values, np.float64)), 0, 1)
    pixels = np.empty((*visible.shape, 4), np.uint8)
    pixels[..., :3], pixels[..., 3] = VEIL_COLOUR, np.rint(255 * (1 - visible))
    return data_uri(Image.fromarray(pixels), "png", optimize=True)


def brightest(values: Sequence[Sequence[float]]) -> str:
    """Describe where a map has its maximum, for the alternative text: "the top left"."""
    a = np.asarray(values)
    row, column = np.unravel_index(a.argmax(), a.shape)
    vertical = ("top", "middle", "bottom")[(2 * row + 1) * 3 // (2 * a.shape[0])]
    horizontal = ("left", "centre", "right")[(2 * column + 1) * 3 // (2 * a.shape[1])]
    return f"the {vertical} {horizontal}".replace("middle ", "")
