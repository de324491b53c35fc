"""Boxes and masks of object maps, plain and refined: the table of docs/localization.md.

    python benchmarks/refine.py DATA... [--images 100] [--draws 3]

Each folder has an annotations.csv with columns file, x1, y1, x2, y2 (or body_x1, ...), and mask if
there are masks. 60 images, on which the constants of `refine` were chosen, are left
out; a draw is a random choice of the others. A mask is that of the largest object; the border
of a trimap is ignored.
"""

from __future__ import annotations

import argparse
import csv
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cenote.allocator import keep_memory
from cenote.data.images import MASK_IGNORE, read_mask
from cenote.data.loading import UnreadableImage
from cenote.data.sources import open_photographs
from cenote.metrics import box_iou
from cenote.models import PooledModel
from cenote.predict.boxes import boxes_from_map, object_masks, predict_maps
from cenote.predict.maps import MapPredictor
from cenote.predict.object_map import THRESHOLD
from cenote.predict.open_model import open_model

DEVELOPMENT = 60  # images


class Truth(NamedTuple):
    image: str
    box: list[float]
    mask: str | None


def read_truth(folder: Path) -> list[Truth]:
    """Return the images with a box."""
    truth = []
    with (folder / "annotations.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            corners = [row.get(f"body_{name}", row.get(name)) for name in ("x1", "y1", "x2", "y2")]
            mask = str(folder / row["mask"]) if row.get("mask") else None
            if all(corners):
                box = [float(corner or 0) for corner in corners]
                truth.append(Truth(str(folder / row["file"]), box, mask))
    return sorted(truth)


def measure(model: PooledModel, images: list[Truth]) -> dict[str, list[float]]:
    """Return, plain and refined: % right at IoU 0.5 and 0.7, mean IoU of the masks."""
    dataset = open_photographs([truth.image for truth in images], [], print)
    by_path = {Path(truth.image).resolve(): truth for truth in images}
    predictor = MapPredictor.create(model, "object", batch=8, images=dataset)
    overlaps: dict[str, list[tuple[float, float]]] = {"plain": [], "refined": []}
    for prediction in predict_maps(predictor, dataset):
        assert not isinstance(prediction, UnreadableImage)
        truth = by_path[Path(dataset.path(prediction.position)).resolve()]
        photograph = dataset.image(prediction.position)
        for name, pixels in (("plain", None), ("refined", photograph)):
            boxes = boxes_from_map(predictor, prediction, THRESHOLD, photograph=pixels)
            overlap = box_iou(boxes.boxes.astype(float), np.array([truth.box])).max(initial=0)
            masks = object_masks(boxes) or [np.zeros(photograph.size[::-1], bool)]
            overlaps[name].append((overlap, mask_iou(masks[0], truth.mask)))
    return {name: summarize(np.array(values)) for name, values in overlaps.items()}


def mask_iou(mask: np.ndarray[Any, Any], path: str | None) -> float:
    """Return the IoU with a mask file, NaN without one."""
    if path is None:
        return float("nan")
    truth = np.asarray(read_mask([Path(path)]))
    counted, true = truth != MASK_IGNORE, truth == 1
    return float((mask & true).sum() / ((mask | true) & counted).sum())


def summarize(overlaps: np.ndarray[Any, Any]) -> list[float]:
    right = [100 * float((overlaps[:, 0] >= least).mean()) for least in (0.5, 0.7)]
    return [*right, 100 * float(overlaps[:, 1].mean())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--draws", type=int, default=3)
    arguments = parser.parse_args()
    model, _ = open_model()
    for folder in arguments.data:
        truth = read_truth(folder)
        random.Random(0).shuffle(truth)
        draws = []
        for seed in range(1, arguments.draws + 1):
            others = truth[DEVELOPMENT:]
            random.Random(seed).shuffle(others)
            draws.append(measure(model, others[: arguments.images]))
        for name in ("plain", "refined"):
            values = np.array([draw[name] for draw in draws])  # (draws, 3)
            cells = zip(values.mean(0), values.std(0), strict=True)
            text = " | ".join(f"{mean:.1f} ± {spread:.1f}" for mean, spread in cells)
            print(f"| {folder.name} | {name} | {text} |", flush=True)


if __name__ == "__main__":
    keep_memory()
    main()
