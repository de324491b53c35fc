"""Pictures of localization: curves over the threshold, boxes against ground truth, galleries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from ..data import Dataset
from ..data.images import full_size
from .blocks import (
    Bar,
    Bars,
    Block,
    Boxes,
    Maps,
    MapTile,
    PhotoWithMaps,
    boxed_photo,
    picture_of,
    shrink_map,
)
from .maps import draw_boxes, overlay
from .plots import COLOURS, FADED, INK, PAPER, new_figure
from .sheet import SheetEntry, SheetWriter, fit, grouped_sheet, readable, save_picture, thumbnail

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IOUS = (0.3, 0.5, 0.7)
KINDS = {
    "pool": "the pool's own map",
    "cam": "CAM",
    "cls": "CLS attention",
    "rollout": "rollout",
    "gradcam": "Grad-CAM",
}
GROUPS = {"worst": "worst", "median": "in the middle", "best": "best"}
SOURCES = {"val": "chosen on validation images", "test": "an oracle's, chosen on these images"}


@dataclass(frozen=True)
class LocalizationCase:
    """An image with its map for the true class, the box at the threshold, and the true boxes."""

    group: str  # of GROUPS
    position: int  # in the data set
    file: str
    iou: float
    box: tuple[float, ...] | None
    truth: Any  # (k, 4)
    map: Any  # (size, size) in [0, 1], of the whole image
    label: str | None
    predicted: str | None

    def to_json(self) -> dict[str, object]:
        """Return the case without its map and position."""
        return {
            "group": self.group,
            "file": self.file,
            "iou": round(self.iou, 4),
            "box": self.box and [round(x, 1) for x in self.box],
            "truth": self.truth.round(1).tolist(),
            "class": self.label,
            "predicted": self.predicted,
        }

    @property
    def boxes(self) -> list[tuple[float, ...]]:
        return [] if self.box is None else [self.box]

    @property
    def wrong_class(self) -> bool:
        return self.predicted not in (None, self.label)

    @property
    def name(self) -> str:
        return self.label or Path(self.file).name


def draw_curves(report: Mapping[str, Any], thresholds: Any, curves: Mapping[str, Any]) -> Figure:
    """Draw right boxes over the threshold for each IoU: solid for test images, dotted for
    validation.

    Dashes are a box in the middle. A disc is the threshold chosen on validation images, a ring the
    best one for the test images. `report` is a localization report of results.json.
    """
    chosen, oracle = report["chosen"], report["oracle"]
    scores, source = chosen or oracle, "oracle threshold"
    legend = [
        "ring: the best threshold for these very images (oracle)",
        "dashes: a fixed box in the middle",
    ]
    if chosen is not None:
        legend = ["disc: chosen on validation images (dotted)", *legend]
        source = "threshold from validation"
    title = f"MaxBoxAccV2 {scores['max_box_acc_v2']['score']:.1f}, {source}"
    figure, axes = new_figure(10, 6, title)
    for i, (iou, colour) in enumerate(zip(IOUS, COLOURS[:3], strict=True)):
        style: dict[str, Any] = {"color": colour}
        axes.plot(thresholds, 100 * curves["test"][i], linewidth=2, label=f"IoU ≥ {iou:g}", **style)
        if "val" in curves:
            axes.plot(thresholds, 100 * curves["val"][i], ":", linewidth=1.2, alpha=0.8, **style)
        centred = scores["centred_box"]["per_iou"][i]
        axes.axhline(centred, linewidth=0.9, alpha=0.55, linestyle=(0, (6, 3)), **style)
        for score, fill, size in ((oracle, PAPER, 10), (chosen, colour, 7)):
            if score is not None:
                best = score["max_box_acc_v2"]
                style |= {"markerfacecolor": fill, "markersize": size, "markeredgewidth": 1.8}
                axes.plot(best["thresholds"][i], best["per_iou"][i], "o", zorder=5, **style)
    axes.set_xlabel(f"threshold of the map (steps of {report['interval']:g})", color=INK)
    axes.set_ylabel(f"right boxes (% of {report['images_with_boxes']} images)", color=INK)
    figure.supxlabel(" · ".join(legend), color=FADED, fontsize=9)
    axes.set_xlim(-0.02, 1)  # a ring at threshold 0 is complete
    axes.set_ylim(0, 102)
    axes.legend(loc="upper right", facecolor=PAPER, edgecolor="none", framealpha=1)
    return figure


def case_page(
    cases: Sequence[LocalizationCase], dataset: Dataset, report: Mapping[str, Any]
) -> Image.Image | None:
    """Draw the worst, median and best: true (blue) and predicted (amber) boxes, and the map."""
    groups: dict[str, list[SheetEntry]] = {}
    about = (
        f" · {KINDS.get(report['kind'], report['kind'])} · {_threshold(report)}"
        " · amber: found, blue: true"
    )
    for group, name in GROUPS.items():
        same_group = [case for case in cases if case.group == group]
        entries = []
        for case, photo in readable(same_group, dataset, lambda case: case.position):
            small = thumbnail(photo)
            pictures = [
                draw_boxes(picture, case.boxes, case.truth, photo.size)
                for picture in (small, overlay(small, case.map))
            ]
            wrong = "class wrong · " if case.wrong_class else ""
            entries.append(SheetEntry(pictures, case.name, f"{wrong}IoU {case.iou:.2f}"))
        if entries:
            heading = f"the {len(entries)} {name} of {report['images_with_boxes']} images"
            groups[heading + about] = entries
            about = ""  # only on top
    return grouped_sheet(groups, columns=3)


def localization_blocks(
    report: Mapping[str, Any], cases: Sequence[LocalizationCase], dataset: Dataset
) -> list[Block]:
    """Return right boxes at three IoUs, cases with their boxes, and their maps."""
    scores = report["chosen"] or report["oracle"]
    methods = {"max_box_acc_v2": "boxes of its maps", "centred_box": "a fixed box in the middle"}
    bars = [
        Bar(f"IoU ≥ {iou:g}", share, group)
        for key, group in methods.items()
        for iou, share in zip(scores[key]["iou"], scores[key]["per_iou"], strict=True)
    ]
    images = f"{report['images_with_boxes']} images"
    note = f"Right boxes in percent of {images}; no box was used for training."
    blocks: list[Block] = [Bars("Boxes from where it looks", "%", tuple(bars), (note,))]
    best_first = sorted(cases, key=lambda case: -list(GROUPS).index(case.group))
    photos = readable(best_first, dataset, lambda case: case.position)
    if not photos:
        return blocks
    boxed = []
    for case, photo in photos:
        name = f"{case.name}, taken for {case.predicted}" if case.wrong_class else case.name
        caption = f"{name} ({GROUPS[case.group]})"
        boxed.append(boxed_photo(photo, case.boxes, caption, case.truth, case.iou))
    note = f"The best, those in the middle and the worst; the {_threshold(report)}."
    blocks.append(Boxes("Boxes against truth", tuple(boxed), (note,)))
    maps = []
    for group in reversed(GROUPS):
        for case, photo in [pair for pair in photos if pair[0].group == group][1::-1]:
            kind = KINDS.get(report["kind"], report["kind"])
            tile = MapTile(kind, shrink_map(case.map), f"IoU {case.iou:.2f}")
            maps.append(PhotoWithMaps(picture_of(photo), case.name, (tile,)))
    note = f"Boxes are drawn around what is above a threshold: the {_threshold(report)}."
    blocks.append(Maps("Where it looks", tuple(maps), (note,)))
    return blocks


def _threshold(report: Mapping[str, Any]) -> str:
    return f"threshold {report['threshold']:.2f}, {SOURCES[report['threshold_from']]}"


PICTURE_SIDE = 1024  # pixels of the longer side of a picture of one photograph


class Gallery:
    """Write pictures of predicted boxes: one per photograph, and contact sheets with the maps."""

    def __init__(self, folder: Path, heading: str) -> None:
        self.folder, self.sheets = folder, SheetWriter(folder, heading)

    def add(
        self, photo: Image.Image, name: str, boxes: Any, score_map: Any, title: str, note: str = ""
    ) -> None:
        """Add a photograph; boxes are in pixels of its file."""
        size, large = full_size(photo), fit(photo, min(PICTURE_SIDE, max(photo.size)))
        save_picture(draw_boxes(large, boxes, [], size), self.folder / f"{name}.jpg")
        small = thumbnail(photo)
        pictures = [draw_boxes(small, boxes, [], size), overlay(small, score_map)]
        self.sheets.add(SheetEntry(pictures, title, note))
