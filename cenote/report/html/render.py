"""A page as one file of HTML: its style, script and pictures inside, readable without the script."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from .bars import draw_bars
from .blocks import Bars, Block, Boxes, Maps, Panels, Picture, Scatter, Table, Text
from .boxes import draw_boxes
from .maps import draw_maps
from .markup import Html, el, join
from .page import Page
from .panels import draw_panels
from .scatter import draw_scatter
from .shots import figure, image
from .table import draw_table

STYLES = ("colours", "layout", "table", "plot", "pictures", "print")
SCRIPTS = ("theme", "sort", "maps", "enlarge", "copy")


def _text(block: Text, name: str) -> Html:
    return el("div", [el("p", paragraph) for paragraph in block.paragraphs], class_="prose")


def _picture(block: Picture, name: str) -> Html:
    return el(
        "div", figure(image(block.picture, block.alt), None, "wide", block.alt), class_="gallery"
    )


DRAW: dict[type, Callable[[Any, str], Html]] = {
    Text: _text, Table: draw_table, Scatter: draw_scatter, Maps: draw_maps, Boxes: draw_boxes, Bars: draw_bars,
    Panels: draw_panels, Picture: _picture,
}  # fmt: skip


def render(page: Page) -> str:
    names = ids([block.title for block in page.blocks])
    links = [
        el("li", el("a", b.title, href=f"#{n}")) for b, n in zip(page.blocks, names, strict=True)
    ]
    links.append(el("li", el("a", "How it was made", href="#made")))
    sections = [_section(block, name) for block, name in zip(page.blocks, names, strict=True)]
    style, script = _read("style", "css", STYLES), _read("script", "js", SCRIPTS)
    head = el(
        "head", el("meta", charset="utf-8"), el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"), el("meta", name="referrer", content="no-referrer"),
        el("link", rel="icon", href="data:,"), el("title", page.title), el("style", style),
    )  # fmt: skip
    toggle = el("button", "Dark", type="button", class_="theme", hidden=True)
    body = el(
        "body", el("a", "Skip to the results", href="#results", class_="skip"),
        el("header", el("div", el("p", "cenote", class_="brand"), toggle, class_="bar"), el("h1", page.title),
           el("p", page.lead, class_="lead")),
        el("nav", el("ol", links), aria_label="Contents"),
        el("main", sections, id="results", tabindex=-1), _made(page), el("script", script, type="module"),
    )  # fmt: skip
    return "<!doctype html>\n" + el("html", head, body, lang="en") + "\n"


def ids(titles: list[str]) -> list[str]:
    """An address for each section: words of its title, with a number where another has them already."""
    taken = {"made", "results"}
    names = []
    for title in titles:
        stem = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40] or "part"
        name, number = stem, 2
        while name in taken:
            name, number = f"{stem}-{number}", number + 1
        taken.add(name)
        names.append(name)
    return names


def _section(block: Block, name: str) -> Html:
    notes = getattr(block, "notes", ())
    told = el("div", [el("p", note) for note in notes], class_="notes") if notes else None
    # Ids inside begin with two hyphens, which no title becomes: they never meet another section's.
    body = DRAW[type(block)](block, f"--{name}")
    heading = el("h2", block.title, id=f"{name}--title")
    kind = type(block).__name__.lower()
    return el(
        "section", heading, body, told, id=name, data_kind=kind, aria_labelledby=f"{name}--title"
    )


def _made(page: Page) -> Html:
    parts = [el("h2", "How it was made", id="made--title")]
    if page.command:
        copy = el("button", "Copy", type="button", class_="copy", hidden=True)
        parts.append(
            el("div", el("pre", el("code", page.command), tabindex=0), copy, class_="command")
        )
    facts = dict(page.made_with)
    if page.seconds is not None and math.isfinite(page.seconds):
        facts = {"time": duration(page.seconds), **facts}
    parts.append(
        el("dl", [el("div", el("dt", name), el("dd", value)) for name, value in facts.items()])
    )
    return el("footer", el("section", parts, aria_labelledby="made--title"), id="made")


def duration(seconds: float) -> str:
    """75 -> 1 min 15 s."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _read(folder: str, suffix: str, names: tuple[str, ...]) -> Html:
    base = files(__package__) / folder
    return join(*(Html((base / f"{name}.{suffix}").read_text(encoding="utf-8")) for name in names))
