"""Images unlike the training images: scores that need no such images, compared.

    python benchmarks/novelty.py shared/data/pets --far shared/data/rsscn7 [--pool gap] [--seeds 3]

For each seed a model is trained on half of the classes (`cenote fit --freeze`, 60% of their images);
the other 40% are familiar test images. Unlike them are the images of the other classes ("near") and
of other data sets ("far"). AUROC in percent; "alarms" is the share of familiar images, "found" that of
the others, beyond the threshold that 5% of the validation images exceed.

softmax: the largest probability; logit: the largest logit; energy: log-sum-exp of the logits; mean: the
cosine to the nearest class mean of the training vectors; mahalanobis: the distance to the nearest class
mean, by a shared covariance, shrunk; whitened: the same as a cosine; knn: the cosine to the nearest
training image.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cenote.data import Dataset, open_dataset
from cenote.data.splits import split
from cenote.models import PooledModel, load
from cenote.predict.embedding import embed_dataset, predict_logits
from cenote.train.configure import configure
from cenote.train.fit import fit

SCORES = ("softmax", "logit", "energy", "mean", "mahalanobis", "whitened", "knn")
SHRINKAGE = 0.1


def link(dataset: Dataset, positions: list[int], folder: Path) -> Path:
    """Make a folder of class folders with links to these images."""
    for i in positions:
        path = dataset.path(i).resolve()
        place = folder / dataset.classes[dataset.labels[i]] / f"{i}{path.suffix}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(path)
    return folder


class Scores:
    """Scores of images, higher for familiar ones, by the vectors of the training images."""

    def __init__(self, model: PooledModel, train: Dataset) -> None:
        self.model = model
        outputs = embed_dataset(model, train)
        self.vectors, labels = outputs.vectors, outputs.labels(train)
        self.means = torch.stack([self.vectors[labels == c].mean(0) for c in labels.unique()])
        residuals = self.vectors - self.means[torch.unique(labels, return_inverse=True)[1]]
        covariance = residuals.T @ residuals / len(residuals)
        size = covariance.diagonal().mean() * torch.eye(len(covariance))
        covariance = (1 - SHRINKAGE) * covariance + SHRINKAGE * size
        self.whiten = torch.linalg.inv(torch.linalg.cholesky(covariance)).T
        self.centre = self.means.mean(0)

    def __call__(self, dataset: Dataset) -> dict[str, np.ndarray]:
        logits, vectors = (f(self.model, dataset).vectors for f in (predict_logits, embed_dataset))
        white, means = ((x - self.centre) @ self.whiten for x in (vectors, self.means))
        values: dict[str, Tensor] = {
            "softmax": logits.softmax(1).amax(1),
            "logit": logits.amax(1),
            "energy": logits.logsumexp(1),
            "mean": (F.normalize(vectors) @ F.normalize(self.means).T).amax(1),
            "mahalanobis": -torch.cdist(white, means).amin(1),
            "whitened": (F.normalize(white) @ F.normalize(means).T).amax(1),
            "knn": (F.normalize(vectors) @ F.normalize(self.vectors).T).amax(1),
        }
        return {name: value.numpy() for name, value in values.items()}


def auroc(familiar: np.ndarray, other: np.ndarray) -> float:
    below = np.searchsorted(np.sort(familiar), other, "left")
    below_or_equal = np.searchsorted(np.sort(familiar), other, "right")
    return float(100 * (1 - (below + below_or_equal).mean() / 2 / len(familiar)))


def measure(data: Path, far: list[Path], pool: str, seed: int) -> np.ndarray:
    """Return (scores, 2 + 2 x far): alarms, and AUROC and share found of near and far images."""
    dataset, rng = open_dataset(data), random.Random(seed)
    known = set(rng.sample(range(len(dataset.classes)), -(-len(dataset.classes) // 2)))
    train, test, near = list[int](), list[int](), list[int]()
    for i in rng.sample(range(len(dataset)), len(dataset)):
        group = near if dataset.labels[i] not in known else train if rng.random() < 0.6 else test
        group.append(i)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        images = open_dataset(link(dataset, train, folder / "images"))
        splits = split(images, seed=seed)
        config = configure("fit", freeze=True, pool=pool, seed=seed)
        fit(splits, folder / "run", config, object_map=False)
        scores = Scores(load(folder / "run").eval(), splits.train)
        thresholds = {name: np.quantile(v, 0.05) for name, v in scores(splits.val).items()}
        familiar = scores(dataset.select(test))
        others = [scores(dataset.select(near)), *(scores(open_dataset(path)) for path in far)]
    rows = []
    for name in SCORES:
        row = [100 * float((familiar[name] < thresholds[name]).mean())]
        for other in others:
            found = 100 * float((other[name] < thresholds[name]).mean())
            row += [auroc(familiar[name], other[name]), found]
        rows.append(row)
    return np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--far", type=Path, nargs="*", default=[])
    parser.add_argument("--pool", default="gap")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    runs = [measure(options.data, options.far, options.pool, s) for s in range(options.seeds)]
    results = np.stack(runs)
    names = ["near", *(path.name for path in options.far)]
    columns = ["alarms", *(f"{n} {kind}" for n in names for kind in ("AUROC", "found"))]
    print(f"{options.data.name}, {options.pool}: " + ", ".join(columns))
    for name, mean, deviation in zip(SCORES, results.mean(0), results.std(0), strict=True):
        cells = (f"{m:.1f} ± {d:.1f}" for m, d in zip(mean, deviation, strict=True))
        print(f"{name:12}", "  ".join(f"{cell:>12}" for cell in cells))


if __name__ == "__main__":
    main()
