"""Compare the object map of `cenote attend` with the backbone's own map, on data with boxes.

    python benchmarks/attend_maps.py pets cub --weights FILE

FILE has weights of vit_tiny_patch16_224, whose own map is the attention of CLS; that of lite0 is a
class activation map. Options are the command's defaults. Boxes are right from an IoU of 0.5 on;
the average precision of pixels is measured where there are masks. "one at a time": the object map of
a photograph alone, as in `cenote attend cat.jpg`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score

from cenote.data import Dataset, open_dataset
from cenote.data.ground_truth import evenly_spaced
from cenote.data.images import stretch
from cenote.metrics.boxes import box_iou
from cenote.predict.open_model import open_model
from cenote.predict.photos import FailedPhoto, PhotoPrediction, PhotoPredictor


def main(data: list[str], weights: Path, images: int) -> None:
    for name in data:
        dataset = open_dataset(name)
        dataset = dataset.select(evenly_spaced(list(range(len(dataset))), images))
        for backbone, file in (("lite0", None), ("vit_tiny_patch16_224", weights)):
            for kind in ("own", "object", "one at a time"):
                print(f"{name}, {backbone}, {kind}: {measure(dataset, backbone, file, kind)}")


def measure(dataset: Dataset, backbone: str, weights: Path | None, kind: str) -> str:
    """Return the share of right boxes and the average precision of pixels, in percent."""
    paths = [dataset.path(i) for i in range(len(dataset))]
    model, _ = open_model(backbone, weights)
    batches = [[path] for path in paths] if kind == "one at a time" else [paths]
    predictions: list[PhotoPrediction | FailedPhoto] = []
    for batch in batches:
        predictor = PhotoPredictor(model, "own" if kind == "own" else "object", bare=True)
        predictor.fit(batch)
        predictions += predictor(batch)
    right, precisions = [], []
    for prediction in predictions:
        assert isinstance(prediction, PhotoPrediction)
        i = paths.index(prediction.photo.path)
        truth = [box[:4] for box in dataset[i].boxes]
        right.append(prediction.box is not None and box_iou(prediction.box, truth).max() >= 0.5)
        mask = dataset.mask(i)
        if mask is not None:
            mask = np.asarray(mask)
            score_map, known = stretch(prediction.map, mask.shape[::-1]), mask != 255
            precisions.append(average_precision_score(mask[known] > 0, score_map[known]))
    return ", ".join(
        f"{noun} {100 * np.mean(values):.1f} +- {100 * np.std(values) / len(values) ** 0.5:.1f}"
        for noun, values in (("boxes", right), ("pixels", precisions))
        if values
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", help="images with boxes")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--images", type=int, default=96)
    main(**vars(parser.parse_args()))
