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
from .html.blocks import Bar, Bars, Block, Picture
from .html.pictures import picture_of
from .palette import COLOURS, FADED, INK, PAPER
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
GROUP_COLOURS = {
    "as it is": COLOURS[6],
    "the object alone": COLOURS[2],
    "on another background": COLOURS[0],
    "without the object": COLOURS[1],
}


def variant_group(variant: str) -> str:
    return VARIANT_GROUPS.get(variant, "without the object")


def corruption_title(name: str) -> str:
    """elastic_transform -> elastic transform."""
    return name.replace("_", " ")


def corruption_groups() -> dict[str, str]:
    """Return the group of each corruption."""
    return {name: group for group, names in GROUPS.items() for name in names}


def variant_sheet(dataset: Dataset, position: int, seed: int = 0, side: int = 220) -> Image.Image:
    """Draw an image of a data set with masks in the eight backgrounds of ImageNet-9."""
    path = dataset.path(position)
    if dataset.labels[position] < 0 or not dataset.has_masks[position]:
        raise ValueError(f"{path}: it has no mask or no class, hence no variants")
    row, entries = dataset.rows[position], []
    for variant in VARIANTS:
        changed = with_background(dataset, variant, seed)
        try:
            picture, note = changed.image(int((changed.rows == row).argmax())), ""
        except BadImage as error:
            picture, note = Image.new("RGB", (side, side), PAPER), error.reason
        entries.append(SheetEntry([picture], VARIANT_NAMES[variant], note))
    heading = f"{dataset[position].label} · {path.name}"
    return contact_sheet(entries, heading, columns=4, side=side)


def corruption_sheet(
    image: Image.Image, corrupted: CorruptedImage, severity: int = 3, side: int = 200
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
    columns = 3 if len(names) > 4 else 1
    return contact_sheet(entries, "severities 1 to 5", columns=columns, side=side)


def background_blocks(report: Mapping[str, Any], sheet: Path) -> list[Block]:
    """Return the accuracy on each background, and the picture of all backgrounds if it exists."""
    shares = _readable(report["accuracy"])
    bars = [
        Bar(VARIANT_NAMES[name], share, None, variant_group(name)) for name, share in shares.items()
    ]
    images, same = _variant_images(report)
    notes = [f"Accuracy in percent of {images} images{', the same in all' if same else ''}."]
    if report["gap"] is not None and not math.isnan(report["gap"]):
        notes.append(
            f"Mixed-Same − Mixed-Rand, the cost of other classes' backgrounds: "
            f"{report['gap']:+.1f} points."
        )
    blocks: list[Block] = []
    if bars:
        blocks.append(Bars("On other backgrounds", "%", tuple(bars), tuple(notes)))
    alt = "One photograph with its background kept, removed, or changed"
    return blocks + picture_blocks(sheet, "Eight backgrounds", alt)


def corruption_blocks(report: Mapping[str, Any], sheet: Path) -> list[Block]:
    """Return the accuracy under each corruption, and the picture of them if it exists."""
    groups = corruption_groups()
    bars = [
        Bar(corruption_title(name), mean, None, groups.get(name, ""))
        for name, mean in report["by_corruption"].items()
    ]
    baseline = None if report["clean"] is None else Bar("clean:", report["clean"])
    note = f"Accuracy in percent of {report['images']} images, mean over severities."
    notes = (note, *report["notes"])
    alt = "One photograph under each corruption, at severity 3 of 5"
    return [
        Bars("Under corruption", "%", tuple(bars), notes, baseline),
        *picture_blocks(sheet, "The corruptions", alt),
    ]


def picture_blocks(path: Path, title: str, alt: str) -> list[Block]:
    """Return a block with a picture that is written already, nothing if it is not there."""
    try:
        with Image.open(path) as sheet:
            return [Picture(title, picture_of(sheet, 1200), alt)]
    except OSError:
        return []


def draw_variant_bars(report: Mapping[str, Any], title: str = "") -> Figure:
    """Draw the accuracy on each background, and the gap between two of them."""
    shares = _readable(report["accuracy"])
    values, names = list(shares.values()), list(shares)
    figure, axes = _canvas(len(shares))
    colours = [GROUP_COLOURS[variant_group(name)] for name in names]
    axes.barh(range(len(names)), values, color=colours, height=0.72, zorder=2)
    _label_bars(axes, [VARIANT_NAMES[name] for name in names], values)
    if {"mixed_same", "mixed_rand"} <= set(names) and report["gap"] is not None:
        ends = sorted([shares["mixed_same"], shares["mixed_rand"]])
        low, high = sorted([names.index("mixed_same"), names.index("mixed_rand")])
        line = {"color": INK, "linewidth": 0.8, "linestyle": ":", "zorder": 3}
        for x in ends:
            axes.plot([x, x], [low - 0.45, high + 0.45], **line)
        text = f"gap {report['gap']:+.1f}"
        if report.get("gap_interval"):
            text += " ({:+.1f} to {:+.1f})".format(*report["gap_interval"])
        _annotate(axes, text, (ends[1], high + 0.5), 8)
    images, same = _variant_images(report)
    noun = "image" if images == 1 else "images"
    axes.set_title(title or "Backgrounds", loc="left", color=INK, fontsize=13)
    count = f"{images} {noun}{', the same in all' if same else ' each'}"
    axes.set_title(count, loc="right", color=FADED, fontsize=9)
    axes.set_xlabel(
        "accuracy (%) · green: the object alone · blue: on another background · "
        "red: without the object",
        color=INK,
    )
    return figure


def draw_corruption_bars(report: Mapping[str, Any], title: str = "") -> Figure:
    """Draw the mean accuracy under each corruption, a tick for each severity, a line for clean."""
    means, clean = report["by_corruption"], report["clean"]
    groups = corruption_groups()
    colour_of = dict(zip(GROUPS, COLOURS, strict=False))
    figure, axes = _canvas(len(means))
    colours = [colour_of[groups[name]] for name in means]
    bars = {"color": colours, "height": 0.72, "alpha": 0.85, "zorder": 2}
    axes.barh(range(len(means)), list(means.values()), **bars)
    tick = {"color": INK, "linewidth": 1.1, "alpha": 0.75, "zorder": 3}
    for y, name in enumerate(means):
        for share in report["accuracy"][name].values():
            axes.plot([share, share], [y - 0.3, y + 0.3], **tick)
    if clean is not None:
        axes.axvline(clean, color=INK, linewidth=1, linestyle="--", zorder=4)
        _annotate(axes, f"clean {clean:.1f}", (clean, -0.75), 4, fontsize=9)
    names = [corruption_title(name) for name in means]
    _label_bars(axes, names, list(means.values()), right=True)
    summary = f"mean {report['mean_accuracy']:.1f}"
    if report["mce"] is not None:
        summary += f" · mCE {report['mce']:.1f}"
    axes.set_title(title or "Corruptions", loc="left", color=INK, fontsize=13)
    axes.set_title(summary, loc="right", color=FADED, fontsize=9)
    axes.set_xlabel("accuracy (%), mean over severities; ticks: each severity", color=INK)
    return figure


def _readable(accuracy: Mapping[str, float | None]) -> dict[str, float]:
    """Remove variants without a readable image, whose accuracy is NaN."""
    return {
        name: share
        for name, share in accuracy.items()
        if share is not None and not math.isnan(share)
    }


def _variant_images(report: Mapping[str, Any]) -> tuple[int, bool]:
    """Return the number of images, and whether they are the same in all variants."""
    images = report["images"]
    if isinstance(images, int):
        return images, True
    return max(images.values()), False


def _canvas(bars: int) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.4 + 0.34 * bars), facecolor=PAPER, layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor(PAPER)
    return figure, axes


def _annotate(
    axes: Any, text: str, point: tuple[float, float], offset: int, color: str = INK, **options: Any
) -> None:
    style = {"textcoords": "offset points", "va": "center", "color": color, **options}
    axes.annotate(text, point, (offset, 0), **style)


def _label_bars(
    axes: Any, names: Sequence[str], values: Sequence[float], right: bool = False
) -> None:
    """Put the first bar on top, names beside the bars, values in them or at the right."""
    axes.set_yticks(range(len(names)), names, color=INK)
    axes.set_ylim(len(names) - 0.4, -1.1 if right else -0.6)
    axes.set_xlim(0, 100)
    for y, value in enumerate(values):
        text = f"{value:.1f}"
        if right:
            _annotate(axes, text, (100, y), 6)
        elif value > 12:  # there is room inside the bar
            _annotate(axes, text, (value, y), -5, PAPER, ha="right")
        else:
            _annotate(axes, text, (value, y), 5, ha="left")
    axes.grid(axis="x", alpha=0.25, linewidth=0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
