"""What is behind the figures of an evaluation: boxes against truth, maps, bars of robustness, retrieval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from ...data import BadImage, Dataset
from ...data.corruptions import GROUPS as CORRUPTIONS
from ..localization import GROUPS, Result, Shown
from ..localization import KINDS as MAP_KINDS
from ..robustness import VARIANT_NAMES, told
from .blocks import (
    Bar,
    Bars,
    Block,
    Boxes,
    Maps,
    MapTile,
    Panels,
    PhotoWithBoxes,
    PhotoWithMaps,
    Picture,
    SearchPanel,
    SearchTile,
)
from .found import found_case
from .pictures import picture_of, shrink_map

SMALL = 160  # pixels of a picture in a panel
BACKGROUNDS = {
    "original": "as it is", "only_fg": "the object alone", "mixed_same": "on another background",
    "mixed_rand": "on another background", "mixed_next": "on another background",
}  # fmt: skip


def localize_blocks(result: Result) -> list[Block]:
    """Right boxes at three overlaps, cases with their boxes, and their maps with a threshold to move."""
    report = result.report
    best = report["chosen"] or report["oracle"]
    if best is None:
        return []
    bars = tuple(
        Bar(f"IoU ≥ {iou:g}", share, None, group)
        for group, key in (
            ("boxes of its maps", "max_box_acc_v2"),
            ("a fixed box in the middle", "centred_box"),
        )
        for iou, share in zip(best[key]["iou"], best[key]["per_iou"], strict=True)
    )
    chosen = {"val": "chosen on validation images", "test": "an oracle's, chosen on these images"}
    where = f"the threshold is {report['threshold']:.2f}, {chosen[report['threshold_from']]}"
    images = (
        f"Right boxes in percent of {report['images_with_boxes']} images; no box was trained with."
    )
    blocks: list[Block] = [Bars("Boxes from where it looks", "%", bars, (images,))]
    opened = [
        (case, photo)
        for case in result.cases
        if (photo := _open(result.judged, case.position)) is not None
    ]
    order = list(GROUPS)[::-1]
    opened.sort(key=lambda one: order.index(one[0].group))
    cases = tuple(_case(case, photo, result.judged) for case, photo in opened)
    if cases:
        note = f"The best, those in the middle and the worst; {where}."
        blocks.append(Boxes("Boxes against truth", cases, (note,)))
        kind = MAP_KINDS.get(report["kind"], report["kind"])
        photos = tuple(_looked(case, photo, kind, result.judged) for case, photo in _some(opened))
        blocks.append(
            Maps(
                "Where it looks",
                photos,
                (f"Boxes are drawn around what is above a threshold: {where}.",),
            )
        )
    return blocks


def _some(
    opened: list[tuple[Shown, Image.Image]], each: int = 2
) -> list[tuple[Shown, Image.Image]]:
    return [one for group in GROUPS for one in [o for o in opened if o[0].group == group][:each]][
        ::-1
    ]


def _case(case: Shown, photo: Image.Image, judged: Dataset) -> PhotoWithBoxes:
    wrong = f", taken for {case.predicted}" if case.predicted not in (None, case.label) else ""
    name = case.label or judged.path(case.position).name
    found = [] if case.box is None else [case.box]
    return found_case(photo, found, f"{name}{wrong} ({GROUPS[case.group]})", case.truth, case.iou)


def _looked(case: Shown, photo: Image.Image, kind: str, judged: Dataset) -> PhotoWithMaps:
    """The values as the threshold is held against them."""
    name = case.label or judged.path(case.position).name
    return PhotoWithMaps(
        picture_of(photo), name, (MapTile(kind, shrink_map(case.map), f"IoU {case.iou:.2f}"),)
    )


def background_blocks(report: Mapping[str, Any], sheet: Path | None) -> list[Block]:
    """Accuracy on each background, and a photograph on all of them if it was drawn."""
    bars = tuple(
        Bar(VARIANT_NAMES[name], share, None, BACKGROUNDS.get(name, "without the object"))
        for name, share in report["accuracy"].items()
        if share is not None and not math.isnan(share)
    )
    images = report["images"]
    most = images if isinstance(images, int) else max(images.values())
    note = [
        f"Accuracy in percent of {most} images{', the same in all' if report['same_images'] else ''}."
    ]
    if report["gap"] is not None and not math.isnan(report["gap"]):
        note.append(
            f"Mixed-Same − Mixed-Rand, what backgrounds of other classes cost: {report['gap']:+.1f} points."
        )
    found: list[Block] = [Bars("On other backgrounds", "%", bars, tuple(note))] if bars else []
    return found + sheet_blocks(
        sheet, "Eight backgrounds", "One photograph with its background kept, removed, or changed"
    )


def corruption_blocks(report: Mapping[str, Any], sheet: Path | None) -> list[Block]:
    kinds = {name: kind for kind, names in CORRUPTIONS.items() for name in names}
    bars = tuple(
        Bar(told(name), mean, None, kinds.get(name, ""))
        for name, mean in report["by_corruption"].items()
    )
    line = None if report["clean"] is None else Bar("clean:", report["clean"])
    notes = (
        f"Accuracy in percent of {report['images']} images, mean over severities.",
        *report["notes"],
    )
    found: list[Block] = [Bars("Under corruption", "%", bars, notes, line)]
    return found + sheet_blocks(
        sheet, "The corruptions", "One photograph under each corruption, at severity 3 of 5"
    )


def retrieve_blocks(
    cases: Sequence[Mapping[str, Any]], queries: Dataset, gallery: Dataset
) -> list[Block]:
    """The best and the worst queries, each with its nearest images. Cases are those of a report of `retrieve`."""
    blocks: list[Block] = []
    for group, title in (
        ("best", "Retrieval: the best queries"),
        ("worst", "Retrieval: the worst queries"),
    ):
        rows = tuple(_panel(case, queries, gallery) for case in cases if case["group"] == group)
        if rows:
            blocks.append(Panels(title, rows))
    return blocks


def _panel(case: Mapping[str, Any], queries: Dataset, gallery: Dataset) -> SearchPanel:
    query = SearchTile(_small(queries, case["position"]), str(case["label"]))
    near = (
        SearchTile(_small(gallery, n["position"]), str(n["label"]), bool(n["right"]))
        for n in case["neighbours"]
    )
    return SearchPanel(
        query, f"MAP@R {100 * case['map_at_r']:.0f}, {case['matches']} to find", tuple(near)
    )


def sheet_blocks(path: Path | None, title: str, alt: str) -> list[Block]:
    """A picture that was drawn already, if it was."""
    if path is None:
        return []
    try:
        with Image.open(path) as sheet:
            return [Picture(title, picture_of(sheet, 1200), alt)]
    except OSError:
        return []


def _small(dataset: Dataset, position: int) -> str:
    photo = _open(dataset, position)
    return "" if photo is None else picture_of(photo, SMALL)


def _open(dataset: Dataset, position: int) -> Image.Image | None:
    try:
        return dataset.image(position)
    except BadImage:  # it was there a minute ago
        return None
