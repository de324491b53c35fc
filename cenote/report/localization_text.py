"""A localization report as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

NAMES = {
    "max_box_acc_v2": "MaxBoxAccV2, all contours",
    "max_box_acc": "MaxBoxAcc, largest contour",
    "predicted_class": "V2 of the predicted class",
    "centred_box": "V2 of a fixed centred box",
}


def localization_text(report: dict[str, Any]) -> str:
    """Both ways to choose a threshold, the honest one first."""
    lines = []
    told = f"{_images(report['images'])}, {report['size']} x {report['size']} pixels, {report['kind']} map"
    accuracy = report.get("accuracy")
    lines.append(told if accuracy is None else f"{told}; class right: top-1 {accuracy['top1']:.1f}")
    for key, title in (
        ("chosen", "thresholds chosen on validation images, applied here"),
        ("oracle", "oracle: thresholds chosen on these very images"),
    ):
        if report[key] is not None:
            lines += ["", f"{title:<52}{'IoU 0.3':>9}{'0.5':>7}{'0.7':>7}{'Top-1':>8}{'Top-5':>7}"]
            lines += _rows(report[key])
    if report["pxap"] is not None:
        lines += [
            "",
            f"PxAP {report['pxap']:.1f} ({report['images_with_masks']} masks, bins of {report['bin_width']:g})",
        ]
    if report["threshold"] is not None:
        chosen = {"val": "validation images", "test": "these images (an oracle's)"}[
            report["threshold_from"]
        ]
        lines += [
            "",
            f"largest contour at threshold {report['threshold']:.2f}, from {chosen}: mean IoU {report['mean_iou']:.1f}",
        ]
    best = report["chosen"] or report["oracle"]
    if best is not None and best["centred_box"]["score"] >= best["max_box_acc_v2"]["score"]:
        lines.append(
            "a fixed box in the middle, which has not seen the image, scores no less: these maps find nothing yet"
        )
    for key, what in (
        ("unknown_class", "of classes the model does not know"),
        ("without_truth", "without a box or mask"),
    ):
        if report[key]:
            lines.append(f"left out: {_images(report[key])} {what}")
    return "\n".join(lines)


def _images(number: int) -> str:
    return "1 image" if number == 1 else f"{number} images"


def _rows(scores: dict[str, Any]) -> Iterator[str]:
    for key, name in NAMES.items():
        if key not in scores:
            continue
        found = scores[key]
        interval = "[{:.1f}, {:.1f}]".format(*found["interval95"]) if "interval95" in found else ""
        row = f"  {name:<28}{found['score']:6.1f}  {interval:<14}"
        per_iou = found.get("per_iou", [])
        cells = (
            [f"{value:.1f}" for value in per_iou]
            if len(per_iou) == 3
            else ["", *(f"{v:.1f}" for v in per_iou), ""]
        )
        if per_iou:
            row += "".join(cell.rjust(width) for cell, width in zip(cells, (11, 7, 7), strict=True))
        if "top1" in found and key != "centred_box":
            row += f"{found['top1']:8.1f}{found['top5']:7.1f}"
        yield row.rstrip()
