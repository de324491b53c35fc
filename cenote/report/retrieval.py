"""Queries and what was retrieved for them, right and wrong framed; the scores as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from ..data import BadImage, Dataset
from .sheet import FADED, PAPER, Entry, contact_sheet, stacked

RIGHT, WRONG = (
    (0, 158, 115),
    (213, 60, 20),
)  # apart for the colour-blind as well: one is much lighter
SIDE, FRAME = 150, 6


def retrieval_page(
    cases: Sequence[Mapping[str, Any]], queries: Dataset, gallery: Dataset, heading: str
) -> Image.Image | None:
    """A line a query: itself, then its nearest images, best first. Cases are those of a report of `retrieve`."""
    sheets = []
    for group in ("best", "worst"):
        entries = [_entry(case, queries, gallery) for case in cases if case["group"] == group]
        told = (
            f"{heading} · the best queries · green: right, red: wrong"
            if group == "best"
            else "the worst queries"
        )
        if found := [entry for entry in entries if entry is not None]:
            sheets.append(contact_sheet(found, told, columns=1, side=SIDE))
    return stacked(sheets) if sheets else None


def _entry(case: Mapping[str, Any], queries: Dataset, gallery: Dataset) -> Entry | None:
    query = _picture(queries, case["position"], PAPER)
    if query is None:
        return None
    shown = [query]
    for near in case["neighbours"]:
        picture = _picture(gallery, near["position"], RIGHT if near["right"] else WRONG)
        shown.append(picture or Image.new("RGB", (SIDE, SIDE), FADED))
    title = f"{case['label']} · {Path(case['file']).name}"
    return Entry(shown, title, f"MAP@R {100 * case['map_at_r']:.0f}, {case['matches']} to find")


def _picture(dataset: Dataset, position: int, colour: tuple[int, int, int]) -> Image.Image | None:
    """In a square, so that lines stand under each other, with a frame."""
    try:
        photo = dataset.image(position)
    except BadImage:  # it was there a minute ago
        return None
    inside = SIDE - 2 * FRAME
    scale = inside / max(photo.size)
    size = (max(1, round(photo.width * scale)), max(1, round(photo.height * scale)))
    framed = ImageOps.expand(photo.resize(size, Image.Resampling.LANCZOS), FRAME, colour)
    return ImageOps.pad(framed, (SIDE, SIDE), color=PAPER)


def retrieval_text(report: Mapping[str, Any], where: str) -> str:
    """Two lines of a table, what they are means of, and what was left out."""
    names = [name for name in report if name.startswith("recall@")] + [
        "p@1",
        "r_precision",
        "map@r",
    ]
    heads = [name.replace("recall", "R").replace("r_precision", "RP").upper() for name in names]
    lines = [
        "".join(f"{head:>8}" for head in heads),
        "".join(f"{report[name]:8.2f}" for name in names),
    ]
    against = (
        "the others" if report["gallery"] is None else f"{report['gallery']} images of the gallery"
    )
    lines.append(
        f"percent; {report['queries']} queries of {where}, {report['classes']} classes, against {against}"
    )
    lone = report["without_match"]
    if lone:
        how = "left out" if report["without_match_are"] == "exclude" else "counted as misses"
        lines.append(f"{how}: {lone} {'query' if lone == 1 else 'queries'} with nothing to find")
    if report["alignment"] is not None and report["uniformity"] is not None:
        lines.append(
            f"alignment {report['alignment']:.3f}, uniformity {report['uniformity']:.3f} (lower is better)"
        )
    if none := report["no_class"]:
        lines.append(f"left out: {none} {'image' if none == 1 else 'images'} without a class")
    return "\n".join([*lines, *(f"left out: {sentence}" for sentence in report["unreadable"])])


def landmarks_text(report: Mapping[str, Any]) -> str:
    """A line for each difficulty."""
    names = [name for name in report["medium"] if name != "queries"]
    heads = [name.replace("map", "mAP").replace("mp", "mP") for name in names]
    lines = [f"{'':10}" + "".join(f"{head:>8}" for head in heads) + f"{'queries':>9}"]
    for setting in ("easy", "medium", "hard"):
        score = report[setting]
        lines.append(
            f"{setting:10}"
            + "".join(f"{score[name]:8.2f}" for name in names)
            + f"{score['queries']:9d}"
        )
    lines.append(f"percent; {report['images']} images in the database")
    return "\n".join([*lines, *(f"left out: {sentence}" for sentence in report["unreadable"])])
