"""A table whose columns a reader can sort."""

from __future__ import annotations

import re

from .blocks import Table, Value
from .markup import Html, el

NUMBER = re.compile(r"[-+−]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?")
LONG = 36  # letters, from which on a cell is broken into lines
SIZES = {"k": 1e3, "M": 1e6, "G": 1e9}


def draw_table(block: Table, name: str) -> Html:
    return el(
        "div", sheet(block), class_="scroll", tabindex=0, role="region", aria_label=block.title
    )


def sheet(block: Table, class_: str = "sortable") -> Html:
    """The table alone. Its first column of words heads the rows."""
    first = next((i for i, head in enumerate(block.heads) if not head.numeric and head.name), 0)
    heads = [
        el("th", head.name or el("span", "marks", class_="unseen"), scope="col", title=head.about or None,
           class_="number" if head.numeric else None)
        for head in block.heads
    ]  # fmt: skip
    rows = []
    for place, row in enumerate(block.rows):
        cells = []
        for i, (head, value) in enumerate(zip(block.heads, row, strict=True)):
            long = isinstance(value, str) and len(value) > LONG
            kind = "number" if head.numeric else "long" if long else None
            key = sort_key(value) if head.numeric else None
            scope = {"scope": "row"} if i == first else {}
            cells.append(
                el("th" if i == first else "td", shown(value), class_=kind, data_sort=key, **scope)
            )
        rows.append(el("tr", cells, class_="marked" if place in block.marked else None))
    caption = el("caption", block.title, class_="unseen")
    return el("table", caption, el("thead", el("tr", heads)), el("tbody", rows), class_=class_)


def shown(value: Value) -> str:
    """Numbers as people write them; what needs its own digits comes as text."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else value


def sort_key(value: Value) -> str | None:
    """The number that a cell is sorted by: "91.2 ± 0.4" is 91.2, "1.2M" 1,200,000; None sorts last."""
    if value is None:
        return None
    if not isinstance(value, str):
        return repr(float(value))
    found = NUMBER.search(value)
    if found is None:
        return None
    number = float(found[0].replace(",", "").replace("−", "-"))
    return repr(number * SIZES.get(value[found.end() : found.end() + 1], 1.0))
