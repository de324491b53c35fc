"""What was discovered without labels: boxes against the truth, the best and the worst; masks over photographs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..data import BadImage, Dataset, write_atomically
from .localization import draw_boxes
from .sheet import Entry, contact_sheet, stacked

NAMES = {"lost": "LOST", "dinoseg": "DINO-seg", "dinoseg-compat": "DINO-seg (compat)", "tokencut": "TokenCut",
         "maskcut": "MaskCut", "centre": "a box in the middle"}  # fmt: skip
Boxes = Any  # (k, 4) in pixels of the photograph


def draw_found(
    photo: Image.Image, boxes: Boxes, masks: Sequence[Any], truth: Boxes = (), side: int = 320
) -> Image.Image:
    """The photograph, grey and dark outside of the masks (H, W, in patches); found boxes amber, true ones blue."""
    scale = side / max(photo.size)
    size = (max(1, round(photo.width * scale)), max(1, round(photo.height * scale)))
    small = photo.resize(size, Image.Resampling.LANCZOS)
    if len(masks):
        inside = Image.fromarray(
            np.any([np.asarray(mask, bool) for mask in masks], 0).astype(np.uint8) * 255
        )
        outside = Image.blend(
            Image.eval(small.convert("L"), lambda v: int(v * 0.45)).convert("RGB"), small, 0.15
        )
        small = Image.composite(small, outside, inside.resize(size, Image.Resampling.NEAREST))
    return draw_boxes(small, boxes, truth, photo.size)


def discovery_page(report: Mapping[str, Any], dataset: Dataset, method: str) -> Image.Image | None:
    """The best and the worst images of one method of a report of `cenote.evaluate.discover.discover`."""
    score = report["methods"][method]
    low, high = score["interval"]
    told = f"{NAMES.get(method, method)} on {dataset.name}: CorLoc {score['corloc']:.1f} ({low:.1f} to {high:.1f})"
    headings = {
        "best": f"{told} · the best of {report['images']} · amber: found, blue: true",
        "worst": "the worst",
    }
    sheets = []
    for group, heading in headings.items():
        entries = [entry for case in score[group] if (entry := _entry(case, dataset)) is not None]
        if entries:
            sheets.append(contact_sheet(entries, heading, columns=6))
    return stacked(sheets) if sheets else None


def _entry(case: Mapping[str, Any], dataset: Dataset) -> Entry | None:
    try:
        photo = dataset.image(case["position"])
    except BadImage:  # it was there a minute ago
        return None
    masks = [np.array([[cell == "1" for cell in row] for row in mask]) for mask in case["masks"]]
    picture = draw_found(photo, case["boxes"], masks, case["truth"])
    return Entry([picture], Path(case["image"]).name, f"IoU {case['overlap'] / 100:.2f}")


def write_pages(report: Mapping[str, Any], dataset: Dataset, folder: Path) -> list[str]:
    """discover_METHOD.jpg for each method that was judged; their names."""
    names = []
    for method in report["methods"]:
        page = discovery_page(report, dataset, method) if method != "centre" else None
        if page is not None:
            names.append(f"discover_{method}.jpg")
            with write_atomically(folder / names[-1]) as path:
                page.save(path, quality=92, subsampling=0)
    return names


def enlarged(mask: Any, size: tuple[int, int]) -> np.ndarray[Any, Any]:
    """A mask in patches over an image of `size` (w, h): (h, w) bool."""
    cells = Image.fromarray(np.asarray(mask, np.uint8) * 255)
    return np.asarray(cells.resize(size, Image.Resampling.NEAREST)) > 0


def table(report: Mapping[str, Any]) -> str:
    """A line a method, the best first; without true boxes there is nothing to tell."""
    if not report["methods"]:
        return "no true boxes: nothing to judge"
    read = [f"{name} {report[name]}" for name in ("keys", "attention") if report[name]]
    images = f"{report['images']} {'image' if report['images'] == 1 else 'images'} with boxes"
    lines = [f"{images} · {', '.join(read)} · right: IoU at least {report['delta']:g}"]
    lines.append(f"{'':22s}{'CorLoc':>8s}{'95% interval':>16s}{'mean IoU':>10s}")
    for method, score in sorted(report["methods"].items(), key=lambda item: -item[1]["corloc"]):
        low, high = score["interval"]
        spread = f"{low:.1f} to {high:.1f}"
        lines.append(
            f"{NAMES.get(method, method):22s}{score['corloc']:8.1f}{spread:>16s}{score['mean_overlap']:10.1f}"
        )
    return "\n".join(lines)
