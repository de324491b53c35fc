"""One image in all its variants, and how much accuracy each of them leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from PIL import Image

from ..data import BadImage, Dataset
from ..data.backgrounds import VARIANTS, with_background
from ..data.corruptions import CORRUPTIONS, GROUPS, SEVERITIES
from .palette import COLOURS, FADED, INK, PAPER
from .sheet import Entry, contact_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Corrupted = Callable[
    [str, int], Image.Image
]  # one image by the name of a corruption and its severity

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


def variant_sheet(dataset: Dataset, place: int, seed: int = 0, side: int = 220) -> Image.Image:
    """An image of a data set with masks in the eight backgrounds of ImageNet-9."""
    one = dataset.labels[place] >= 0 and dataset.has_masks[place]
    if not one:
        raise ValueError(f"{dataset.path(place)}: it has no mask or no class, hence no variants")
    row, entries = dataset.rows[place], []
    for variant in VARIANTS:
        changed = with_background(dataset, variant, seed)
        try:
            picture = changed.image(int((changed.rows == row).argmax()))
        except BadImage as error:
            entries.append(
                Entry([Image.new("RGB", (side, side), PAPER)], VARIANT_NAMES[variant], error.reason)
            )
            continue
        entries.append(Entry([picture], VARIANT_NAMES[variant]))
    heading = f"{dataset[place].label} · {dataset.path(place).name}"
    return contact_sheet(entries, heading, columns=4, side=side)


def corruption_sheet(
    image: Image.Image, corrupted: Corrupted, severity: int = 3, side: int = 200
) -> Image.Image:
    """An image and its fifteen corruptions."""
    entries = [Entry([image], "original")]
    entries += [Entry([corrupted(name, severity)], told(name)) for name in CORRUPTIONS]
    return contact_sheet(
        entries, f"ImageNet-C's corruptions, severity {severity} of 5", columns=4, side=side
    )


def severity_sheet(
    corrupted: Corrupted, names: Sequence[str] = tuple(CORRUPTIONS), side: int = 110
) -> Image.Image:
    """An image in all severities of each corruption, weakest first."""
    entries = [Entry([corrupted(name, k) for k in SEVERITIES], told(name)) for name in names]
    return contact_sheet(
        entries, "severities 1 to 5", columns=3 if len(names) > 4 else 1, side=side
    )


def draw_variant_bars(report: Mapping[str, Any], title: str = "") -> Figure:
    """Accuracy on each background; the gap between two of them is drawn."""
    shares = {
        name: share for name, share in report["accuracy"].items() if not math.isnan(share)
    }  # NaN: none readable
    found = {VARIANT_NAMES[name]: share for name, share in shares.items()}
    kind = {"Original": 6, "Only-FG": 2, "Mixed-Same": 0, "Mixed-Rand": 0, "Mixed-Next": 0}
    colours = [COLOURS[kind.get(name, 1)] for name in found]
    figure, axes = _canvas(len(found))
    places = range(len(found))
    axes.barh(places, list(found.values()), color=colours, height=0.72, zorder=2)
    _finish(axes, list(found), list(found.values()))
    if {"Mixed-Same", "Mixed-Rand"} <= set(found) and report["gap"] is not None:
        ends = sorted([found["Mixed-Same"], found["Mixed-Rand"]])
        low, high = sorted([list(found).index("Mixed-Same"), list(found).index("Mixed-Rand")])
        for x in ends:
            axes.plot(
                [x, x], [low - 0.45, high + 0.45], color=INK, linewidth=0.8, linestyle=":", zorder=3
            )
        told_gap = f"gap {report['gap']:+.1f}"
        if report.get("gap_interval"):
            told_gap += " ({:+.1f} to {:+.1f})".format(*report["gap_interval"])
        axes.annotate(
            told_gap,
            (ends[1], high + 0.5),
            (8, 0),
            textcoords="offset points",
            va="center",
            color=INK,
        )
    images = report["images"]
    same, most = (
        isinstance(images, int),
        images if isinstance(images, int) else max(images.values()),
    )
    shown = f"{most} image{'s' * (most != 1)}{', the same in all' if same else ' each'}"
    axes.set_title(title or "Backgrounds", loc="left", color=INK, fontsize=13)
    axes.set_title(shown, loc="right", color=FADED, fontsize=9)
    axes.set_xlabel(
        "accuracy (%) · green: the object alone · blue: on another background · red: without the object",
        color=INK,
    )
    return figure


def draw_corruption_bars(report: Mapping[str, Any], title: str = "") -> Figure:
    """Mean accuracy under each corruption, a tick for each severity, and a line for clean images."""
    means, by = report["by_corruption"], report["accuracy"]
    groups = {name: place for place, names in enumerate(GROUPS.values()) for name in names}
    figure, axes = _canvas(len(means))
    axes.barh(range(len(means)), list(means.values()), color=[COLOURS[groups[name]] for name in means],
              height=0.72, alpha=0.85, zorder=2)  # fmt: skip
    for place, name in enumerate(means):
        for share in by[name].values():
            axes.plot(
                [share, share],
                [place - 0.3, place + 0.3],
                color=INK,
                linewidth=1.1,
                alpha=0.75,
                zorder=3,
            )
    if report["clean"] is not None:
        axes.axvline(report["clean"], color=INK, linewidth=1, linestyle="--", zorder=4)
        axes.annotate(f"clean {report['clean']:.1f}", (report["clean"], -0.75), (4, 0), textcoords="offset points",
                      color=INK, fontsize=9, va="center")  # fmt: skip
    _finish(axes, [told(name) for name in means], list(means.values()), right=True)
    summary = f"mean {report['mean_accuracy']:.1f}"
    if report["mce"] is not None:
        summary += f" · mCE {report['mce']:.1f}"
    axes.set_title(title or "Corruptions", loc="left", color=INK, fontsize=13)
    axes.set_title(summary, loc="right", color=FADED, fontsize=9)
    axes.set_xlabel("accuracy (%), mean over severities; ticks: each severity", color=INK)
    return figure


def told(name: str) -> str:
    """elastic_transform -> elastic transform."""
    return name.replace("_", " ")


def _canvas(bars: int) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.4 + 0.34 * bars), facecolor=PAPER, layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor(PAPER)
    return figure, axes


def _finish(axes: Any, names: Sequence[str], values: Sequence[float], right: bool = False) -> None:
    """First bar on top, names beside the bars, figures in them or in a column at the right."""
    axes.set_yticks(range(len(names)), names, color=INK)
    axes.set_ylim(len(names) - 0.4, -1.1 if right else -0.6)
    axes.set_xlim(0, 100)
    for place, value in enumerate(values):
        if right:
            axes.annotate(
                f"{value:.1f}",
                (100, place),
                (6, 0),
                textcoords="offset points",
                va="center",
                color=INK,
            )
        else:
            inside = value > 12
            axes.annotate(f"{value:.1f}", (value, place), (-5 if inside else 5, 0), textcoords="offset points",
                          va="center", ha="right" if inside else "left", color=PAPER if inside else INK)  # fmt: skip
    axes.grid(axis="x", alpha=0.25, linewidth=0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
