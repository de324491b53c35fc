"""Choose the threshold at which a saved model's maps become boxes, and store it beside the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..data.files import write_atomically
from ..predict.thresholds import FILE, model_digest
from .localize import Localization


def choose_threshold(
    result: Localization, data: str, split: str, oracle: bool = False
) -> dict[str, Any]:
    """What `save_threshold` keeps; `split` is the name of the images that chose it, an oracle's are those it judged."""
    report = result.report
    if result.threshold is None:
        raise ValueError(f"no image of {data} has a box: nothing can choose a threshold")
    images = (
        report["images_with_boxes"]
        if report["threshold_from"] == "test"
        else report["val"]["images"]
    )
    scores = report["chosen"] or report["oracle"]
    return {
        "threshold": round(result.threshold, 6),
        "kind": report["kind"],
        "size": report["size"],
        "chosen_on": {"data": data, "split": split, "images": images, "oracle": oracle},
        # Right boxes at IoU 0.5 in percent, of the maps and of a box in the middle that sees nothing.
        "max_box_acc": round(scores["max_box_acc"]["score"], 4),
        "centred_box": round(scores["centred_box"]["per_iou"][1], 4),
    }


def save_threshold(
    folder: Path, result: Localization, data: str, split: str, oracle: bool = False
) -> Path:
    """Write what `read_threshold` reads."""
    kept = {**choose_threshold(result, data, split, oracle), "model": model_digest(folder)}
    with write_atomically(folder / FILE) as path:
        path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    return folder / FILE
