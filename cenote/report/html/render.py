"""Render a page with Jinja2 as one HTML file that contains its style, script and pictures."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache, partial
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..table import CellValue
from .blocks import Bars, Page, RelativeBox, Scatter, Table, TableColumn
from .pictures import brightest, picture_size, veil_of
from .scatter import lay_out, short_number

NUMBER = re.compile(r"[-+−]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?")
UNITS = {"k": 1e3, "M": 1e6, "G": 1e9}
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # not allowed in HTML
MAX_TILES = 9  # in a row
# matplotlib's inferno at nine places, blended by an SVG filter: red, green and blue.
INFERNO = (
    "0.001 0.122 0.342 0.542 0.736 0.894 0.978 0.965 0.988",
    "0 0.047 0.062 0.135 0.216 0.353 0.558 0.795 0.998",
    "0.014 0.283 0.429 0.415 0.33 0.193 0.035 0.23 0.645",
)


def render(page: Page) -> str:
    """Return the HTML of a page."""
    names = section_names([block.title for block in page.blocks])
    facts = dict(page.made_with)
    if page.seconds is not None and math.isfinite(page.seconds):
        facts = {"time": format_duration(page.seconds), **facts}
    html = (
        _environment()
        .get_template("page.html")
        .render(page=page, sections=list(zip(names, page.blocks, strict=True)), facts=facts)
    )
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
        "pixel": lambda value: f"{value:.6g}",
        "short": short_number,
        "bar_value": format_bar,
        "svg_rect": svg_rect,
        "veil": veil_of,
        "brightest": brightest,
    }
    environment.globals |= {
        "zip": partial(zip, strict=True),
        "source": source,
        "picture_size": picture_size,
        "scatter_layout": lay_out,
        "scatter_table": scatter_table,
        "header_column": header_column,
        "full_scale": full_scale,
        "percent": percent,
        "columns_of": columns_of,
        "inferno": list(zip("RGB", INFERNO, strict=True)),
    }
    return environment


def source(name: str) -> Markup:
    """Return a file of the package as it is: the style sheet or the script."""
    path = files("cenote.report") / "templates" / name
    return Markup(path.read_text(encoding="utf-8"))


def section_names(titles: Sequence[str]) -> list[str]:
    """Return a unique anchor for each section, made of the words of its title."""
    names: list[str] = []
    for title in titles:
        stem = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40] or "part"
        name, number = stem, 2
        while name in names or name in ("made", "results"):
            name, number = f"{stem}-{number}", number + 1
        names.append(name)
    return names


def format_duration(seconds: float) -> str:
    """Return 75 as '1 min 15 s'."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def format_cell(value: CellValue) -> str:
    """Format a cell of a table; strings are shown as they are."""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
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


def header_column(columns: Sequence[TableColumn]) -> int:
    """Return the index of the first column of words, which contains the headers of the rows."""
    named = (i for i, column in enumerate(columns) if not column.numeric and column.name)
    return next(named, 0)


def scatter_table(block: Scatter) -> Table:
    """Return the numbers of a plot as a table."""
    columns = (
        TableColumn("name"),
        TableColumn("group"),
        TableColumn(block.x_label, True),
        TableColumn(block.y_label, True),
        TableColumn("±", True),
    )
    rows = tuple((p.name, p.group, p.x, p.y, p.deviation or None) for p in block.points)
    return Table(f"{block.title}, as numbers", columns, rows)


def full_scale(block: Bars) -> float:
    """Return the value of a full bar: 100 for percentages, else the largest value."""
    bars = [*block.bars, *([block.baseline] if block.baseline else [])]
    largest = max((bar.value + (bar.deviation or 0) for bar in bars), default=1.0)
    return 100.0 if block.unit == "%" and largest <= 100 else largest or 1.0


def percent(value: float, full: float) -> float:
    """Return a value as a percentage of the full scale, from 0 to 100."""
    return round(100 * min(max(value / full, 0.0), 1.0), 2)


def format_bar(value: float) -> str:
    """Format the value beside a bar; small numbers keep three digits."""
    return f"{value:.1f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def svg_rect(box: RelativeBox) -> Markup:
    """Return the attributes of an SVG rectangle in percent, clipped to the picture."""
    x0, y0, x1, y1 = (100 * min(max(v, 0.0), 1.0) for v in box)
    width, height = max(0.0, x1 - x0), max(0.0, y1 - y0)
    return Markup(f'x="{x0:.6g}" y="{y0:.6g}" width="{width:.6g}" height="{height:.6g}"')


def columns_of(tiles: int) -> int:
    """Return the number of columns for a row of tiles; no tile is alone in the last line."""
    return math.ceil(tiles / math.ceil(tiles / MAX_TILES))
