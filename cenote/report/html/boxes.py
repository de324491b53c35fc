"""Found boxes against true ones, on their photographs."""

from __future__ import annotations

from .blocks import Box, Boxes, Case
from .markup import Html, el, join
from .shots import figure, image


def draw_boxes(block: Boxes, name: str) -> Html:
    """Told apart by their lines as well as by their colours."""
    legend = []
    if any(case.truth for case in block.cases):
        legend.append(el("li", _sample("truth"), "true, dashed"))
    legend.append(el("li", _sample("found"), "found, solid"))
    tiles = [_tile(case) for case in block.cases]
    return el("div", el("ul", legend, class_="legend"), el("div", tiles, class_="gallery cases"))


def _tile(case: Case) -> Html:
    score = "" if case.score is None else f"IoU {case.score:.2f}"
    count = len(case.found)
    found = (
        "nothing found" if not count else "one box found" if count == 1 else f"{count} boxes found"
    )
    alt = ", ".join(part for part in (case.caption, found, score) if part)
    lines = [_box(box, "truth") for box in case.truth] + [_box(box, "found") for box in case.found]
    over = el(
        "svg",
        lines,
        viewBox="0 0 100 100",
        preserveAspectRatio="none",
        aria_hidden="true",
        class_="over",
    )
    words = [el("b", case.caption), el("span", score or found, class_="note")]
    return figure(join(image(case.picture, alt), over), words, about=alt)


def _box(box: Box, kind: str) -> Html:
    """A dark rim below the line: seen on snow and at night."""
    x0, y0, x1, y1 = (100 * min(max(v, 0.0), 1.0) for v in box)
    shape = {"x": x0, "y": y0, "width": max(0.0, x1 - x0), "height": max(0.0, y1 - y0)}
    return join(el("rect", class_="rim", **shape), el("rect", class_=kind, **shape))


def _sample(kind: str) -> Html:
    return el("svg", _box((0.08, 0.12, 0.92, 0.88), kind), viewBox="0 0 100 100", preserveAspectRatio="none",
              aria_hidden="true", class_="over sample")  # fmt: skip
