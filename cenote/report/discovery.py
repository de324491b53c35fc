"""Pictures of objects discovered without labels: boxes and masks, the best and the worst."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..data import Dataset
from ..data.images import full_size
from ..predict.discovery import METHODS
from .blocks import Bar, Bars, Block, Boxes, Page, PhotoWithBoxes, Table, TableColumn, boxed_photo
from .maps import draw_boxes
from .sheet import SheetEntry, grouped_sheet, readable, thumbnail

MAX_CASES = 6  # of a group, on the page
BASELINE = "centre"
BoxArray = Any  # (k, 4) in pixels of the photograph
COLUMNS = (
    TableColumn("method"),
    TableColumn("CorLoc", True, "percent"),
    TableColumn("95% interval"),
    TableColumn("mean IoU", True, "percent"),
)


def method_title(name: str) -> str:
    """Return the title of a method, or of the baseline."""
    if name == BASELINE:
        return "a box in the middle"
    return METHODS[name].title


def draw_discovered(
    photo: Image.Image, boxes: BoxArray, masks: Sequence[Any], truth: BoxArray = ()
) -> Image.Image:
    """Draw a photograph, dark outside of the masks (in patches); true boxes are blue."""
    small = thumbnail(photo)
    if len(masks):
        union = enlarged(np.any([np.asarray(mask, bool) for mask in masks], 0), small.size)
        dark = Image.eval(small.convert("L"), lambda v: int(v * 0.45)).convert("RGB")
        small = Image.composite(small, Image.blend(dark, small, 0.15), Image.fromarray(union))
    return draw_boxes(small, boxes, truth, full_size(photo))


def enlarged(mask: Any, size: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Resize a mask in patches to an image of `size` (w, h): (h, w) bool."""
    cells = Image.fromarray(np.asarray(mask, np.uint8) * 255)
    return np.asarray(cells.resize(size, Image.Resampling.NEAREST)) > 0


def discovery_page(report: Mapping[str, Any], dataset: Dataset, method: str) -> Image.Image | None:
    """Draw the best and the worst images of one method; `report` is that of results.json."""
    score = report["methods"][method]
    low, high = score["interval"]
    title = f"{method_title(method)} on {dataset.name}: CorLoc {score['corloc']:.1f}"
    headings = {
        "best": f"{title} ({low:.1f} to {high:.1f}) · the best of "
        f"{report['images_with_boxes']} · amber: predicted, blue: true",
        "worst": "the worst",
    }
    groups: dict[str, list[SheetEntry]] = {heading: [] for heading in headings.values()}
    for group, heading in headings.items():
        for case, photo in readable(score[group], dataset, lambda case: case["position"]):
            masks = [np.array([list(row) for row in rows]) == "1" for rows in case["masks"]]
            picture = draw_discovered(photo, case["boxes"], masks, case["truth"])
            note = f"IoU {case['overlap'] / 100:.2f}"
            groups[heading].append(SheetEntry([picture], Path(case["image"]).name, note))
    return grouped_sheet(groups, columns=6)


def discovery_blocks(report: Mapping[str, Any], dataset: Dataset) -> list[Block]:
    """Return CorLoc of each method, and the best and the worst images of the best method."""
    scores = sorted(report["methods"].items(), key=lambda item: -item[1]["corloc"])
    methods = [(name, score) for name, score in scores if name != BASELINE]
    if not methods:
        return []
    bars = [Bar(method_title(name), score["corloc"]) for name, score in methods]
    baseline = Bar("a box in the middle:", report["methods"][BASELINE]["corloc"])
    note = (
        f"CorLoc: of {report['images_with_boxes']} images, a box overlaps a true one by at least "
        f"{report['delta']:g}."
    )
    rows = []
    for name, score in scores:
        low, high = score["interval"]
        interval, overlap = f"{low:.1f} to {high:.1f}", f"{score['mean_overlap']:.1f}"
        rows.append((method_title(name), f"{score['corloc']:.1f}", interval, overlap))
    title = "Boxes without labels"
    blocks: list[Block] = [
        Bars(title, "%", tuple(bars), (note,), baseline),
        Table(f"{title}, in numbers", COLUMNS, tuple(rows)),
    ]
    name, best = methods[0]
    for group in ("best", "worst"):
        photos = []
        for case, photo in readable(best[group][:MAX_CASES], dataset, lambda c: c["position"]):
            name_and_truth = Path(case["image"]).name, case["truth"]
            photos.append(boxed_photo(photo, case["boxes"], *name_and_truth, case["overlap"] / 100))
        if photos:
            blocks.append(Boxes(f"{method_title(name)}: the {group}", tuple(photos)))
    return blocks


def discover_command_page(
    report: Mapping[str, Any],
    dataset: Dataset,
    photos: Mapping[str, Sequence[PhotoWithBoxes]],
    boxes: int,
    command: str = "",
    seconds: float | None = None,
) -> Page:
    """Return the page of `cenote discover`: `photos` by method, and the number of all `boxes`."""
    blocks = discovery_blocks(report, dataset)
    for name, examples in photos.items():
        if examples:
            blocks.append(Boxes(method_title(name), tuple(examples)))
    names = ", ".join(method_title(name) for name in photos)
    lead = f"{boxes} boxes in {report['images']} photographs: {names}, {report['backbone']}."
    return Page(f"Objects in {report['data']}", lead, tuple(blocks), command, seconds)
