"""What the protocols of robustness say in a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .robustness import VARIANT_NAMES, told

REASONS = {
    "no_class": "without a class",
    "unknown_class": "of classes that the model does not know",
    "no_mask": "without a mask",
}


def background_text(report: Mapping[str, Any], most: int = 5) -> str:
    """A line for each variant, the gap, and what was left out, of which at most so many files are named."""
    found = {
        name: "no readable image" if math.isnan(x) else f"{x:6.2f}"
        for name, x in report["accuracy"].items()
    }
    lines = [f"{VARIANT_NAMES[name]:<12}{share}" for name, share in found.items()]
    if report["gap"] is not None and not math.isnan(report["gap"]):
        interval = report["gap_interval"]
        sure = f" (95%: {interval[0]:+.2f} to {interval[1]:+.2f})" if interval else ""
        lines.append(f"gap, Mixed-Same - Mixed-Rand: {report['gap']:+.2f}{sure}")
    if report["same_images"]:
        lines.append(
            f"accuracy in percent on the same {_images(report['images'])} in every variant"
        )
        if report["dropped"]:
            lines.append(
                f"left out: {_images(report['dropped'])} of which some variant cannot be made"
            )
    return "\n".join([*lines, *_left_out(report, most)])


def corruption_text(report: Mapping[str, Any], most: int = 5) -> str:
    """A line for each corruption with its severities, the means, and what must be said of them."""
    levels = list(next(iter(report["accuracy"].values())))
    lines = [
        f"{'accuracy in percent at severity':<32}"
        + "".join(f"{level:>7}" for level in levels)
        + "   mean"
    ]
    for name, by in report["accuracy"].items():
        shares = "".join(f"{share:7.1f}" for share in by.values())
        lines.append(f"{told(name):<32}{shares}{report['by_corruption'][name]:7.1f}")
    clean = "" if report["clean"] is None else f"clean {report['clean']:.2f}, "
    lines.append(
        f"{clean}mean under corruption {report['mean_accuracy']:.2f}, of {_images(report['images'])}"
    )
    if report["mce"] is not None:
        relative = (
            "" if report["relative_mce"] is None else f", relative mCE {report['relative_mce']:.1f}"
        )
        lines.append(f"mCE {report['mce']:.1f}{relative}")
    lines += [f"note: {note}" for note in report["notes"]]
    return "\n".join([*lines, *_left_out(report, most)])


def _images(number: int) -> str:
    return "1 image" if number == 1 else f"{number} images"


def _left_out(report: Mapping[str, Any], most: int) -> list[str]:
    lines = [
        f"left out: {_images(n)} {REASONS[why]}"
        for why, n in report.get("left_out", {}).items()
        if n
    ]
    bad = report["unreadable"]
    lines += [f"left out: {sentence}" for sentence in bad[:most]]
    return [*lines, f"left out: {len(bad) - most} more"] if len(bad) > most else lines
