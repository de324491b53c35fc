"""What was found without labels, as blocks: boxes on photographs, and against the truth where there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from ...data import BadImage, Dataset
from ..discovery import NAMES
from .blocks import Bar, Bars, Block, Boxes, PhotoWithBoxes, RelativeBox, Table, TableColumn
from .page import Page
from .pictures import picture_of

EACH = 6  # cases of a group


def found_case(
    photo: Image.Image, boxes: Any, caption: str, truth: Any = (), score: float | None = None
) -> PhotoWithBoxes:
    """Boxes in pixels of the photograph."""
    return PhotoWithBoxes(
        picture_of(photo), shares(truth, photo.size), shares(boxes, photo.size), caption, score
    )


def shares(boxes: Any, size: tuple[int, int]) -> tuple[RelativeBox, ...]:
    """Of width and height instead of pixels."""
    width, height = size
    return tuple(
        (round(x0 / width, 4), round(y0 / height, 4), round(x1 / width, 4), round(y1 / height, 4))
        for x0, y0, x1, y1 in ((float(v) for v in box) for box in boxes)
    )


def discover_blocks(report: Mapping[str, Any], dataset: Dataset) -> list[Block]:
    """CorLoc of each method, and the best and the worst images of the best one. A report of `evaluate.discover`."""
    scores = sorted(report["methods"].items(), key=lambda item: -item[1]["corloc"])
    if not scores:
        return []
    title = "Objects found without labels"
    note = f"CorLoc: of {report['images']} images, a box overlaps a true one by at least {report['delta']:g}."
    middle = report["methods"].get("centre")
    line = None if middle is None else Bar("a box in the middle:", middle["corloc"])
    bars = tuple(
        Bar(NAMES.get(name, name), score["corloc"]) for name, score in scores if name != "centre"
    )
    heads = (
        TableColumn("method"),
        TableColumn("CorLoc", True, "percent"),
        TableColumn("95% interval"),
        TableColumn("mean IoU", True, "percent"),
    )
    rows = tuple(
        (NAMES.get(name, name), f"{one['corloc']:.1f}", "{:.1f} to {:.1f}".format(*one["interval"]),
         f"{one['mean_overlap']:.1f}")
        for name, one in scores
    )  # fmt: skip
    blocks: list[Block] = [
        Bars(title, "%", bars, (note,), line),
        Table(f"{title}, in numbers", heads, rows),
    ]
    name, best = next((one for one in scores if one[0] != "centre"), scores[0])
    for group in ("best", "worst"):
        cases = [_case(case, dataset) for case in best[group][:EACH]]
        shown = tuple(case for case in cases if case is not None)
        if shown:
            blocks.append(Boxes(f"{NAMES.get(name, name)}: the {group}", shown))
    return blocks


def discover_page(
    report: Mapping[str, Any],
    dataset: Dataset,
    shown: Mapping[str, Sequence[PhotoWithBoxes]],
    boxes: int,
    command: str = "",
    seconds: float | None = None,
) -> Page:
    """The page of `cenote discover`: `shown` are some photographs by method, `boxes` is how many were found in all."""
    blocks = discover_blocks(report, dataset)
    blocks += [
        Boxes(f"Found by {NAMES.get(name, name)}", tuple(cases))
        for name, cases in shown.items()
        if cases
    ]
    names = ", ".join(NAMES.get(name, name) for name in shown)
    photographs = report["images"] + report["without_box"]
    lead = f"{boxes} boxes in {photographs} photographs by {names}, with {report['backbone']}."
    return Page(f"Objects in {report['data']}", lead, tuple(blocks), command, seconds)


def _case(case: Mapping[str, Any], dataset: Dataset) -> PhotoWithBoxes | None:
    try:
        photo = dataset.image(case["position"])
    except BadImage:  # it was there a minute ago
        return None
    return found_case(
        photo, case["boxes"], Path(case["image"]).name, case["truth"], case["overlap"] / 100
    )
