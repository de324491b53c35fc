"""Pictures of robustness: one image in all its variants, and the accuracy on each of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from ..data import BadImage, Dataset
from ..data.backgrounds import VARIANTS, with_background
from ..data.corruptions import CORRUPTIONS, GROUPS, SEVERITIES
from .blocks import Bar, Bars, Block, picture_blocks
from .plots import INK, PAPER, draw_bars
from .sheet import SheetEntry, contact_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CorruptedImage = Callable[[str, int], Image.Image]  # corruption and severity -> image
VARIANT_NAMES = {
    "original": "Original",
    "only_fg": "Only-FG",
    "mixed_same": "Mixed-Same",
    "mixed_rand": "Mixed-Rand",
    "mixed_next": "Mixed-Next",
    "no_fg": "No-FG",
    "only_bg_b": "Only-BG-B",
    "only_bg_t": "Only-BG-T",
}
VARIANT_GROUPS = {
    "original": "as it is",
    "only_fg": "the object alone",
    "mixed_same": "on another background",
    "mixed_rand": "on another background",
    "mixed_next": "on another background",
}


def corruption_title(name: str) -> str:
    """elastic_transform -> elastic transform."""
    return name.replace("_", " ")


def variant_sheet(dataset: Dataset, position: int, seed: int = 0, side: int = 220) -> Image.Image:
    """Draw an image of a data set with masks in the eight backgrounds of ImageNet-9."""
    row, entries = dataset.rows[position], []
    for variant in VARIANTS:
        changed = with_background(dataset, variant, seed)
        try:
            picture, note = changed.image(int((changed.rows == row).argmax())), ""
        except BadImage as error:
            picture, note = Image.new("RGB", (side, side), PAPER), error.reason
        entries.append(SheetEntry([picture], VARIANT_NAMES[variant], note))
    heading = f"{dataset[position].label} · {dataset.path(position).name}"
    return contact_sheet(entries, heading, columns=4, side=side)


def corruption_sheet(
    image: Image.Image, corrupted: CorruptedImage, severity: int, side: int = 200
) -> Image.Image:
    """Draw an image and its corruptions."""
    entries = [SheetEntry([image], "original")]
    for name in CORRUPTIONS:
        entries.append(SheetEntry([corrupted(name, severity)], corruption_title(name)))
    heading = f"ImageNet-C's corruptions, severity {severity} of 5"
    return contact_sheet(entries, heading, columns=4, side=side)


def severity_sheet(
    corrupted: CorruptedImage, names: Sequence[str] = tuple(CORRUPTIONS), side: int = 110
) -> Image.Image:
    """Draw an image in all severities of each corruption, weakest first."""
    entries = [
        SheetEntry([corrupted(name, k) for k in SEVERITIES], corruption_title(name))
        for name in names
    ]
    return contact_sheet(entries, "severities 1 to 5", columns=3, side=side)


def background_blocks(report: Mapping[str, Any], sheet: Path) -> list[Block]:
    """Return the accuracy on each background, and the picture of all backgrounds if it exists."""
    alt = "One photograph with its background kept, removed, or changed"
    blocks, bars = picture_blocks(sheet, "Eight backgrounds", alt), variant_bars(report)
    if bars.bars:
        blocks.insert(0, bars)
    return blocks


def variant_bars(report: Mapping[str, Any]) -> Bars:
    """Return the accuracy on each background that has readable images."""
    bars = [
        Bar(VARIANT_NAMES[name], share, VARIANT_GROUPS.get(name, "without the object"))
        for name, share in report["accuracy"].items()
        if _is_number(share)
    ]
    notes = [f"Accuracy in percent of {_count_images(report)}."]
    if _is_number(report["gap"]):
        gap = f"Mixed-Same − Mixed-Rand, the cost of other classes' backgrounds: {_gap(report)}."
        notes.append(gap)
    return Bars("On other backgrounds", "%", tuple(bars), tuple(notes))


def draw_variant_bars(report: Mapping[str, Any], title: str = "Backgrounds") -> Figure:
    """Draw the accuracy on each background; the gap between two of them is in the title."""
    note = _count_images(report)
    if _is_number(report["gap"]):
        note += f" · gap {_gap(report)}"
    return draw_bars(variant_bars(report), title, note, "accuracy (%)")[0]


def corruption_blocks(report: Mapping[str, Any], sheet: Path) -> list[Block]:
    """Return the accuracy under each corruption, and the picture of them if it exists."""
    alt = "One photograph under each corruption, at severity 3 of 5"
    return [corruption_bars(report), *picture_blocks(sheet, "The corruptions", alt)]


def corruption_bars(report: Mapping[str, Any]) -> Bars:
    """Return the mean accuracy under each corruption, and the accuracy on clean images."""
    groups = {name: group for group, names in GROUPS.items() for name in names}
    bars = [
        Bar(corruption_title(name), mean, groups.get(name, ""))
        for name, mean in report["by_corruption"].items()
    ]
    baseline = None if report["clean"] is None else Bar("clean:", report["clean"])
    note = f"Accuracy in percent of {report['images']} images, mean over severities."
    return Bars("Under corruption", "%", tuple(bars), (note, *report["notes"]), baseline)


def draw_corruption_bars(report: Mapping[str, Any], title: str = "Corruptions") -> Figure:
    """Draw the mean accuracy under each corruption, a tick for each severity, a line for clean."""
    summary = f"mean {report['mean_accuracy']:.1f}"
    if report["mce"] is not None:
        summary += f" · mCE {report['mce']:.1f}"
    label = "accuracy (%), mean over severities; ticks: each severity"
    figure, axes = draw_bars(corruption_bars(report), title, summary, label)
    for y, name in enumerate(report["by_corruption"]):
        for share in report["accuracy"][name].values():
            axes.plot([share, share], [y - 0.3, y + 0.3], color=INK, linewidth=1.1, zorder=3)
    return figure


def _is_number(share: float | None) -> bool:
    return share is not None and not math.isnan(share)


def _gap(report: Mapping[str, Any]) -> str:
    text = f"{report['gap']:+.1f}"
    if report.get("gap_interval"):
        text += " ({:+.1f} to {:+.1f})".format(*report["gap_interval"])
    return text


def _count_images(report: Mapping[str, Any]) -> str:
    """Return the number of images, and whether they are the same in all variants."""
    images = report["images"]
    if isinstance(images, int):
        return f"{images} image{'s' * (images != 1)}, the same in all"
    return f"{max(images.values())} images each"
