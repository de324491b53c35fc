"""Bars with their values written beside them; for a screen reader they are a table."""

from __future__ import annotations

from .blocks import Bar, Bars
from .markup import Html, el


def draw_bars(block: Bars, name: str) -> Html:
    """The scale ends at 100 for percentages, else at the largest value."""
    marks = [*block.bars, *([block.baseline] if block.baseline else [])]
    most = max((bar.value + (bar.spread or 0) for bar in marks), default=1.0)
    full = 100.0 if block.unit == "%" and most <= 100 else most or 1.0
    groups = list(dict.fromkeys(bar.group for bar in block.bars))
    bodies = []
    for place, group in enumerate(groups):
        head = (
            el("tr", el("th", group, colspan=3, scope="rowgroup"), class_="group")
            if group
            else None
        )
        rows = [_row(bar, place, full, block) for bar in block.bars if bar.group == group]
        bodies.append(el("tbody", head, rows))
    heads = el("tr", el("th", "name", scope="col"), el("th", "bar", scope="col", aria_hidden="true"),
               el("th", block.unit, scope="col"), class_="unseen")  # fmt: skip
    table = el(
        "table",
        el("caption", block.title, class_="unseen"),
        el("thead", heads),
        bodies,
        class_="bars",
    )
    line = block.baseline
    told = None if line is None else el("p", el("i", class_="dash"), f"{line.name} {_number(line.value)} {block.unit}",
                                        class_="legend")  # fmt: skip
    return el("div", table, told)


def _row(bar: Bar, group: int, full: float, block: Bars) -> Html:
    parts = [el("i", class_=f"fill g{group % 8}", style=f"width:{_share(bar.value, full)}%")]
    if bar.spread:
        low, high = _share(bar.value - bar.spread, full), _share(bar.value + bar.spread, full)
        parts.append(el("i", class_="spread", style=f"left:{low}%;width:{high - low:.2f}%"))
    if block.baseline is not None:
        parts.append(el("i", class_="line", style=f"left:{_share(block.baseline.value, full)}%"))
    spread = f" ± {bar.spread:.1f}" if bar.spread else ""
    track = el("td", el("div", parts, class_="track"), aria_hidden="true")
    return el(
        "tr",
        el("th", bar.name, scope="row"),
        track,
        el("td", _number(bar.value) + spread, class_="number"),
    )


def _share(value: float, full: float) -> float:
    return round(100 * min(max(value / full, 0.0), 1.0), 2)


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"
