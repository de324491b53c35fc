"""A localization result on paper: a table, the curve, and the images behind it, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image, ImageDraw

from ..data import BadImage, Dataset, write_atomically
from .curves import draw_curves
from .maps import draw_box, overlay
from .sheet import Entry, contact_sheet, stacked

TRUTH = (90, 220, 255)  # light blue, beside the amber of what was found
SIDE = 320  # pixels of a picture that waits for its page
PAGE = 40  # photographs on one page
KINDS = {
    "pool": "the pool's own map",
    "cam": "CAM",
    "cls": "CLS attention",
    "rollout": "rollout",
    "gradcam": "Grad-CAM",
}
GROUPS = {"worst": "worst", "median": "in the middle", "best": "best"}


class Shown(Protocol):
    """A case of `cenote.evaluate.cases`."""

    group: str
    position: int
    iou: float
    box: tuple[float, ...] | None
    truth: Any
    map: Any
    label: str | None
    predicted: str | None


class Result(Protocol):
    """A `cenote.evaluate.localize.Localization`, of which this room knows no more than it draws."""

    report: dict[str, Any]
    judged: Dataset
    thresholds: Any
    curves: dict[str, Any]
    cases: Any


def write_localization(result: Result, folder: Path) -> list[Path]:
    """curve.png and cases.jpg in a folder, where there are boxes."""
    written = []
    if result.curves:
        with write_atomically(folder / "curve.png") as path:
            draw_curves(result.report, result.thresholds, result.curves).savefig(path, dpi=130)
        written.append(folder / "curve.png")
    page = case_page(result.cases, result.judged, result.report)
    if page is not None:
        with write_atomically(folder / "cases.jpg") as path:
            page.save(path, quality=92, subsampling=0)
        written.append(folder / "cases.jpg")
    return written


def case_page(
    cases: Sequence[Shown], dataset: Dataset, report: dict[str, Any]
) -> Image.Image | None:
    """The worst, median and best: the photograph with its true box (blue) and the found one (amber), and the map."""
    sheets: list[Image.Image] = []
    chosen = {"val": "from validation images", "test": "an oracle's, from these images"}
    threshold = (
        f"threshold {report['threshold']:.2f}, {chosen[report['threshold_from']]}" if cases else ""
    )
    for group, name in GROUPS.items():
        entries = [
            entry
            for case in cases
            if case.group == group and (entry := _entry(case, dataset)) is not None
        ]
        if entries:
            kind = KINDS.get(report["kind"], report["kind"])
            told = f"the {len(entries)} {name} of {report['images_with_boxes']} images"
            extra = f" · {kind} · {threshold} · amber: found, blue: true" if not sheets else ""
            sheets.append(contact_sheet(entries, told + extra, columns=3))
    return stacked(sheets) if sheets else None


def _entry(case: Shown, dataset: Dataset) -> Entry | None:
    try:
        photo = dataset.image(case.position)
    except BadImage:  # it was there a minute ago
        return None
    size, small = photo.size, _small(photo)
    found = [] if case.box is None else [case.box]
    pictures = [
        draw_boxes(picture, found, case.truth, size)
        for picture in (small, overlay(small, case.map))
    ]
    wrong = "class wrong · " if case.predicted not in (None, case.label) else ""
    return Entry(
        pictures, case.label or dataset.path(case.position).name, f"{wrong}IoU {case.iou:.2f}"
    )


def draw_boxes(
    picture: Image.Image,
    found: Sequence[Sequence[float]],
    truth: Sequence[Sequence[float]],
    size: tuple[int, int],
) -> Image.Image:
    """Boxes in pixels of an image of `size`, on a picture of it: true ones blue, then found ones amber."""
    scale = np.array([picture.width, picture.height] * 2) / np.array([*size] * 2)
    picture = picture.copy()
    draw = ImageDraw.Draw(picture)
    for box in truth:
        x0, y0, x1, y1 = np.rint(np.asarray(box) * scale).tolist()
        line = max(2, round(min(picture.size) / 75))
        draw.rectangle(
            (x0, y0, max(x0, x1 - 1), max(y0, y1 - 1)), outline=(0, 0, 0), width=line + 1
        )
        draw.rectangle((x0, y0, max(x0, x1 - 1), max(y0, y1 - 1)), outline=TRUTH, width=line)
    for box in found:
        x0, y0, x1, y1 = (int(v) for v in np.rint(np.asarray(box) * scale))
        picture = draw_box(picture, (x0, y0, x1, y1))
    return picture


class Gallery:
    """Pictures of found boxes: one of each photograph, and pages of all with their maps."""

    def __init__(self, folder: Path, heading: str) -> None:
        self.folder, self.heading = folder, heading
        self.page: list[Entry] = []
        self.pages = 0

    def add(
        self, photo: Image.Image, name: str, boxes: Any, score_map: Any, title: str, note: str = ""
    ) -> None:
        """Boxes in pixels of the photograph."""
        large = photo.copy()
        large.thumbnail((1024, 1024), Image.Resampling.LANCZOS)
        self._save(draw_boxes(large, boxes, [], photo.size), f"{name}.jpg")
        small = _small(photo)
        pictures = [draw_boxes(small, boxes, [], photo.size), overlay(small, score_map)]
        self.page.append(Entry(pictures, title, note))
        if len(self.page) == PAGE:
            self.turn()

    def turn(self) -> None:
        """Write the page, if anything is on it."""
        if self.page:
            self.pages += 1
            self._save(contact_sheet(self.page, self.heading), f"contact_sheet_{self.pages}.jpg")
            self.page = []

    def _save(self, image: Image.Image, name: str) -> None:
        with write_atomically(self.folder / name) as path:
            image.save(path, quality=92, subsampling=0)


def _small(photo: Image.Image) -> Image.Image:
    small = photo.copy()
    small.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    return small
