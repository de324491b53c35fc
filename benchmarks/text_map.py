"""Measure maps of a text against masks: average precision of pixels, mean over images.

    cenote world w --preset tiny --images 2400 --size 160 --classes 12 --distractors 1 --domain photo cartoon
    cenote clip w -o run --backbone vit_tiny_patch16_224 --weights FILE --tokens cls --freeze --size 224 --epochs 20
    python benchmarks/text_map.py w run

The texts are the class of the image and another class. "pair": beside an image of the other class,
where the text has to choose. The baseline of the middle is the distance from the centre.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor
from torch.nn import functional as F

from cenote.data import open_dataset
from cenote.metrics.arrays import Array
from cenote.models.image_text import create_image_text
from cenote.models.text_map import TextMap

IMAGES = 80  # of the test split


def main(data: str, run: str) -> None:
    dataset, model = open_dataset(data), create_image_text(run)
    names = sorted({str(record.label) for record in dataset})
    maps = {name: TextMap(model, name).eval() for name in names}
    test = [i for i, record in enumerate(dataset) if record.split == "test"]
    chosen = np.random.default_rng(0).permutation(test)[:IMAGES].tolist()
    transform = maps[names[0]].backbone.preprocessing.whole()
    scores: dict[str, list[float]] = {}
    for i, j in zip(chosen, np.roll(chosen, 1).tolist(), strict=True):
        label, other = str(dataset[i].label), str(dataset[j].label)
        if label == other:
            continue
        mask = np.asarray(dataset.mask(i)) > 0
        first, second = transform(dataset.image(i)), transform(dataset.image(j))
        pair = np.concatenate([mask, np.zeros_like(mask)], 1)
        for name, image, truth in (
            ("single", first, mask),
            ("pair", torch.cat([first, second], 2), pair),
        ):
            for kind, text in (("right", label), ("other", other)):
                score = precision(maps[text].attend(image[None]), truth)
                scores.setdefault(f"{name}, {kind} text", []).append(score)
        ramp = torch.linspace(-1, 1, 28).abs()
        centre = -torch.maximum(ramp[:, None], ramp)[None, None]
        scores.setdefault("single, middle", []).append(precision(centre, mask))
    for name, values in scores.items():
        print(f"{name:20} {100 * np.mean(values):.1f}  ({len(values)} images)")


def precision(score_map: Tensor, mask: Array) -> float:
    """Return the average precision of a map (1, 1, H, W) for the pixels of a mask."""
    pixels = F.interpolate(score_map, mask.shape, mode="bilinear")
    return float(average_precision_score(mask.ravel(), pixels.numpy().ravel()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="images with masks, classes and a test split")
    parser.add_argument("run", help="an image-text model")
    main(**vars(parser.parse_args()))
