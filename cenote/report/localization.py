"""Pictures of localization: curves over the threshold, boxes against ground truth, galleries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw

from ..data import BadImage, Dataset, write_atomically
from .html.blocks import Bar, Bars, Block, Boxes, Maps, MapTile, PhotoWithBoxes, PhotoWithMaps
from .html.pictures import picture_of, shrink_map
from .maps import draw_box, overlay
from .palette import COLOURS, FADED, INK, PAPER
from .sheet import SheetEntry, contact_sheet, stacked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRUTH = (90, 220, 255)  # light blue, beside the amber of predicted boxes
THUMBNAIL = 320  # pixels
PHOTOS_PER_SHEET = 40
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
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), facecolor=PAPER, layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor(PAPER)
    chosen, oracle = report["chosen"], report["oracle"]
    centred = (chosen or oracle)["centred_box"]["per_iou"]
    for i, (iou, colour) in enumerate(zip(IOUS, COLOURS[:3], strict=True)):
        line: dict[str, Any] = {"color": colour, "linewidth": 2, "label": f"IoU ≥ {iou:g}"}
        axes.plot(thresholds, 100 * curves["test"][i], **line)
        if "val" in curves:
            val = 100 * curves["val"][i]
            axes.plot(thresholds, val, ":", color=colour, linewidth=1.2, alpha=0.8)
        axes.axhline(centred[i], color=colour, linewidth=0.9, alpha=0.55, linestyle=(0, (6, 3)))
        disc: dict[str, Any] = {"markerfacecolor": colour, "markersize": 7, "zorder": 5}
        ring: dict[str, Any] = {"markerfacecolor": PAPER, "markersize": 10, "zorder": 4}
        for scores, marker in ((oracle, ring), (chosen, disc)):
            if scores is not None:
                best = scores["max_box_acc_v2"]
                point = best["thresholds"][i], best["per_iou"][i]
                axes.plot(*point, "o", color=colour, markeredgewidth=1.8, **marker)
    legend = [
        "ring: the best threshold for these very images (oracle)",
        "dashes: a fixed box in the middle",
    ]
    source = "oracle threshold"
    if chosen is not None:
        legend = ["disc: chosen on validation images (dotted)", *legend]
        source = "threshold from validation"
    score = (chosen or oracle)["max_box_acc_v2"]["score"]
    axes.set_title(f"MaxBoxAccV2 {score:.1f}, {source}", loc="left", color=INK, fontsize=13)
    axes.set_xlabel(f"threshold of the map (steps of {report['interval']:g})", color=INK)
    axes.set_ylabel(f"right boxes (% of {report['images_with_boxes']} images)", color=INK)
    figure.supxlabel(" · ".join(legend), color=FADED, fontsize=9)
    axes.set_xlim(-0.02, 1)  # a ring at threshold 0 is complete
    axes.set_ylim(0, 102)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper right", facecolor=PAPER, edgecolor="none", framealpha=1)
    return figure


def case_page(
    cases: Sequence[LocalizationCase], dataset: Dataset, report: Mapping[str, Any]
) -> Image.Image | None:
    """Draw the worst, median and best: true (blue) and predicted (amber) boxes, and the map."""
    sheets: list[Image.Image] = []
    for group, name in GROUPS.items():
        same_group = [case for case in cases if case.group == group]
        photos = [(case, _photo(dataset, case.position)) for case in same_group]
        entries = [_entry(case, photo) for case, photo in photos if photo is not None]
        if entries:
            heading = f"the {len(entries)} {name} of {report['images_with_boxes']} images"
            if not sheets:
                kind = KINDS.get(report["kind"], report["kind"])
                source = SOURCES[report["threshold_from"]]
                heading += f" · {kind} · threshold {report['threshold']:.2f}, {source}"
                heading += " · amber: found, blue: true"
            sheets.append(contact_sheet(entries, heading, columns=3))
    return stacked(sheets) if sheets else None


def localization_blocks(
    report: Mapping[str, Any], cases: Sequence[LocalizationCase], dataset: Dataset
) -> list[Block]:
    """Return right boxes at three IoUs, cases with their boxes, and their maps."""
    scores = report["chosen"] or report["oracle"]
    methods = {
        "max_box_acc_v2": "boxes of its maps",
        "centred_box": "a fixed box in the middle",
    }
    bars = [
        Bar(f"IoU ≥ {iou:g}", share, None, group)
        for key, group in methods.items()
        for iou, share in zip(scores[key]["iou"], scores[key]["per_iou"], strict=True)
    ]
    images = f"{report['images_with_boxes']} images"
    note = f"Right boxes in percent of {images}; no box was used for training."
    blocks: list[Block] = [Bars("Boxes from where it looks", "%", tuple(bars), (note,))]
    best_first = sorted(cases, key=lambda case: -list(GROUPS).index(case.group))
    photos = [(case, _photo(dataset, case.position)) for case in best_first]
    readable = [(case, photo) for case, photo in photos if photo is not None]
    if not readable:
        return blocks
    threshold = f"the threshold is {report['threshold']:.2f}, {SOURCES[report['threshold_from']]}"
    note = f"The best, those in the middle and the worst; {threshold}."
    with_boxes = [_photo_with_boxes(case, photo) for case, photo in readable]
    blocks.append(Boxes("Boxes against truth", tuple(with_boxes), (note,)))
    kind = KINDS.get(report["kind"], report["kind"])
    with_maps = []
    for group in reversed(GROUPS):
        first_two = [pair for pair in readable if pair[0].group == group][:2]
        with_maps += [_photo_with_map(case, photo, kind) for case, photo in first_two[::-1]]
    note = f"Boxes are drawn around what is above a threshold: {threshold}."
    blocks.append(Maps("Where it looks", tuple(with_maps), (note,)))
    return blocks


def boxed_photo(
    photo: Image.Image, boxes: Any, caption: str, truth: Any = (), iou: float | None = None
) -> PhotoWithBoxes:
    """Return a photograph for the page; boxes are in its pixels."""
    width, height = photo.size
    scale = np.array([width, height, width, height])

    def relative(pixel_boxes: Any) -> tuple[Any, ...]:
        shares = np.asarray(pixel_boxes, np.float64).reshape(-1, 4) / scale
        return tuple(tuple(box) for box in shares.round(4).tolist())

    return PhotoWithBoxes(picture_of(photo), relative(truth), relative(boxes), caption, iou)


def draw_boxes(
    picture: Image.Image,
    boxes: Sequence[Sequence[float]],
    truth: Sequence[Sequence[float]],
    size: tuple[int, int],
) -> Image.Image:
    """Draw boxes in pixels of an image of `size` on a picture of it: true blue, predicted amber."""
    scale = np.array([picture.width, picture.height] * 2) / np.array([*size] * 2)
    picture = picture.copy()
    draw = ImageDraw.Draw(picture)
    line = max(2, round(min(picture.size) / 75))
    for box in truth:
        x0, y0, x1, y1 = np.rint(np.asarray(box) * scale).tolist()
        corners = (x0, y0, max(x0, x1 - 1), max(y0, y1 - 1))
        draw.rectangle(corners, outline=(0, 0, 0), width=line + 1)
        draw.rectangle(corners, outline=TRUTH, width=line)
    for box in boxes:
        x0, y0, x1, y1 = (int(v) for v in np.rint(np.asarray(box) * scale))
        picture = draw_box(picture, (x0, y0, x1, y1))
    return picture


class Gallery:
    """Write pictures of predicted boxes: one per photograph, and contact sheets with the maps."""

    def __init__(self, folder: Path, heading: str) -> None:
        self.folder, self.heading = folder, heading
        self.entries: list[SheetEntry] = []
        self.sheets = 0

    def add(
        self, photo: Image.Image, name: str, boxes: Any, score_map: Any, title: str, note: str = ""
    ) -> None:
        """Add a photograph; boxes are in its pixels."""
        self._save(draw_boxes(_thumbnail(photo, 1024), boxes, [], photo.size), f"{name}.jpg")
        small = _thumbnail(photo)
        pictures = [draw_boxes(small, boxes, [], photo.size), overlay(small, score_map)]
        self.entries.append(SheetEntry(pictures, title, note))
        if len(self.entries) == PHOTOS_PER_SHEET:
            self.save_sheet()

    def save_sheet(self) -> None:
        """Write the contact sheet, if it has any photographs."""
        if self.entries:
            self.sheets += 1
            sheet = contact_sheet(self.entries, self.heading)
            self._save(sheet, f"contact_sheet_{self.sheets}.jpg")
            self.entries = []

    def _save(self, image: Image.Image, name: str) -> None:
        with write_atomically(self.folder / name) as path:
            image.save(path, quality=92, subsampling=0)


def _entry(case: LocalizationCase, photo: Image.Image) -> SheetEntry:
    small = _thumbnail(photo)
    pictures = [
        draw_boxes(picture, case.boxes, case.truth, photo.size)
        for picture in (small, overlay(small, case.map))
    ]
    note = f"IoU {case.iou:.2f}"
    return SheetEntry(pictures, case.name, f"class wrong · {note}" if case.wrong_class else note)


def _photo_with_boxes(case: LocalizationCase, photo: Image.Image) -> PhotoWithBoxes:
    name = f"{case.name}, taken for {case.predicted}" if case.wrong_class else case.name
    return boxed_photo(photo, case.boxes, f"{name} ({GROUPS[case.group]})", case.truth, case.iou)


def _photo_with_map(case: LocalizationCase, photo: Image.Image, kind: str) -> PhotoWithMaps:
    tile = MapTile(kind, shrink_map(case.map), f"IoU {case.iou:.2f}")
    return PhotoWithMaps(picture_of(photo), case.name, (tile,))


def _photo(dataset: Dataset, position: int) -> Image.Image | None:
    """Return an image, None if it cannot be read any more."""
    try:
        return dataset.image(position)
    except BadImage:
        return None


def _thumbnail(photo: Image.Image, side: int = THUMBNAIL) -> Image.Image:
    small = photo.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    return small
