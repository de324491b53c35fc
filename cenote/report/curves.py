"""How the share of right boxes depends on the threshold, and where the chosen and the best thresholds lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .palette import COLOURS, FADED, INK, PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IOUS = (0.3, 0.5, 0.7)


def draw_curves(
    report: dict[str, Any], thresholds: np.ndarray[Any, Any], curves: dict[str, Any]
) -> Figure:
    """A line for each IoU: full on the judged images, dotted on validation. What a centred box scores is a thin line.

    A disc is where validation put the threshold, a ring where the judged images themselves would have.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), facecolor=PAPER, layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor(PAPER)
    chosen, oracle = report["chosen"], report["oracle"]
    centred = (chosen or oracle)["centred_box"]["per_iou"]
    for i, (iou, colour) in enumerate(zip(IOUS, COLOURS[:3], strict=True)):
        axes.plot(
            thresholds, 100 * curves["test"][i], color=colour, linewidth=2, label=f"IoU ≥ {iou:g}"
        )
        if "val" in curves:
            axes.plot(
                thresholds, 100 * curves["val"][i], ":", color=colour, linewidth=1.2, alpha=0.8
            )
        axes.axhline(centred[i], color=colour, linewidth=0.9, alpha=0.55, linestyle=(0, (6, 3)))
        for found, full in ((oracle, False), (chosen, True)):
            if found is not None:
                best = found["max_box_acc_v2"]
                face = colour if full else PAPER
                axes.plot(best["thresholds"][i], best["per_iou"][i], "o", color=colour, markerfacecolor=face,
                          markersize=7 if full else 10, markeredgewidth=1.8, zorder=5 if full else 4)  # fmt: skip
    explained = [
        "ring: the best threshold for these very images (oracle)",
        "dashes: a fixed box in the middle",
    ]
    if chosen is not None:
        explained = ["disc: chosen on validation images (dotted)", *explained]
    best = (chosen or oracle)["max_box_acc_v2"]
    told = "threshold from validation" if chosen else "oracle threshold"
    axes.set_title(f"MaxBoxAccV2 {best['score']:.1f}, {told}", loc="left", color=INK, fontsize=13)
    axes.set_xlabel(f"threshold of the map (steps of {report['interval']:g})", color=INK)
    axes.set_ylabel(f"right boxes (% of {report['images_with_boxes']} images)", color=INK)
    figure.supxlabel(" · ".join(explained), color=FADED, fontsize=9)
    axes.set_xlim(-0.02, 1)  # thresholds of 0 are common, and their rings whole
    axes.set_ylim(0, 102)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        loc="upper right", facecolor=PAPER, edgecolor="none", framealpha=1
    )  # over the dashes
    return figure
