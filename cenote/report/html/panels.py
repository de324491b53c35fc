"""Questions and what was found for them: right and wrong by a mark and a word, not by colour alone."""

from __future__ import annotations

from .blocks import Cell, Panel, Panels
from .markup import Html, el
from .shots import figure, image

MARKS = {True: ("✓", "right"), False: ("✗", "wrong")}


def draw_panels(block: Panels, name: str) -> Html:
    return el("div", [_panel(panel) for panel in block.rows])


def _panel(panel: Panel) -> Html:
    asked = []
    if panel.query is not None:
        asked.append(_cell(panel.query, "asked"))
    if panel.text:
        asked.append(el("p", panel.text, class_="words"))
    found = [el("li", _cell(cell)) for cell in panel.results]
    results = (
        el("ol", found, class_="gallery results")
        if found
        else el("p", "Nothing found.", class_="empty")
    )
    return el("div", el("div", asked, class_="question gallery"), results, class_="panel")


def _cell(cell: Cell, class_: str = "") -> Html:
    words = [el("b", cell.caption)]
    if cell.right is not None:
        mark, word = MARKS[cell.right]
        words.insert(
            0, el("span", mark, el("span", f" {word}: ", class_="unseen"), class_=f"verdict {word}")
        )
        class_ = f"{class_} {word}".strip()
    if not cell.picture:
        return figure(el("span", "missing", class_="empty"), words, f"{class_} blank".strip())
    return figure(image(cell.picture, cell.caption), words, class_, cell.caption)
