"""Measure maps of a ViT without and with a test-time register: average precision of pixels.

    python benchmarks/registers.py pets FILE

FILE has weights of vit_tiny_patch16_224. The register and the object map are fitted to the images
of which the maps are, without their masks.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score
from torch.nn import functional as F

from cenote.data import open_dataset
from cenote.data.ground_truth import evenly_spaced
from cenote.models.registers import fit_register
from cenote.predict.maps import MapPredictor
from cenote.predict.open_model import open_model

IMAGES = 32


def main(data: str, weights: Path) -> None:
    dataset = open_dataset(data)
    dataset = dataset.select(evenly_spaced(list(range(len(dataset))), IMAGES))
    for registers in (False, True):
        model, _ = open_model("vit_tiny_patch16_224", weights)
        if registers:
            fit_register(model.backbone, dataset)
            print(f"neurons by block: {model.backbone.register_neurons}")
        for kind, size in (("cls", 448), ("object", None)):
            predictor = MapPredictor.create(model, kind, size, batch=4, images=dataset)
            scores = []
            for batch in predictor.iterate(dataset):
                for i, values in zip(batch.positions, batch.maps, strict=True):
                    mask = np.asarray(dataset.mask(i))
                    pixels = F.interpolate(values[None, None], mask.shape, mode="bilinear")
                    known = mask != 255
                    score = average_precision_score(mask[known], pixels[0, 0].numpy()[known])
                    scores.append(100 * float(score))
            mean, error = np.mean(scores), np.std(scores) / len(scores) ** 0.5
            print(
                f"{kind}, register: {registers}: {mean:.1f} +- {error:.1f} ({len(scores)} images)"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="images with masks")
    parser.add_argument("weights", type=Path)
    main(**vars(parser.parse_args()))
