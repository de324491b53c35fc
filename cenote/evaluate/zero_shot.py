"""Zero-shot prediction: GSP's prototypes of some classes predict the mean vectors of others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..backbones import Features
from ..data import Dataset
from ..data.loading import load
from ..metrics import zero_shot_prediction
from ..models import PooledModel
from ..pooling.gsp import GSP
from ..predict.distributed import device_of
from ..predict.embedding import Loading, predict_dataset
from ..report.prototypes import draw_histograms, prototype_sheet
from .protocol import Evaluation, Figure, Picture, Protocol, Report, count_images, left_out

CLASSES, EACH = 4, 3  # classes on the page of prototypes, and images of each


@dataclass
class ZeroShotReport(Report):
    """Scores in percent of `cenote.metrics.zero_shot_prediction`, means over 1000 random halves."""

    scores: dict[str, float]
    classes: int
    images: int
    unreadable: list[str]
    histograms: Tensor  # (images, m)
    labels: Tensor  # (images,)
    not_in_json: ClassVar = ("histograms", "labels")

    def table(self, split: str) -> str:
        lines = left_out(self.unreadable)
        of = f"{self.classes} classes of {count_images(self.images)} of {split}"
        for kind in ("l2", "cosine", "chance"):
            names = (f"accuracy_{kind}", f"map_{kind}")
            if kind == "chance":
                names = ("chance_accuracy", "chance_map")
            accuracy, mean_precision = (self.scores[name] for name in names)
            lines.append(f"{of}, {kind}: accuracy {accuracy:.2f}, MAP {mean_precision:.2f}")
        return "\n".join(lines)

    def figures(self) -> list[Figure]:
        return [
            Figure(f"zero-shot MAP, {kind}", self.scores[f"map_{kind}"], "%")
            for kind in ("l2", "cosine")
        ]


class ZeroShot(Protocol[ZeroShotReport], name="zero-shot"):
    """The pictures show the prototypes of each class, and their positions in images [GSP Fig. 4]."""

    one_class = True
    images: Dataset

    def run(self, evaluation: Evaluation) -> ZeroShotReport:
        self.images = evaluation.test.select(evaluation.test.labels >= 0)
        with evaluation.loading("zero-shot", len(self.images)) as loading:
            return predict_classes(evaluation.model, self.images, loading)

    def pictures(self, evaluation: Evaluation, report: ZeroShotReport) -> Iterable[Picture]:
        images = self.images
        yield (
            "histograms.png",
            lambda: draw_histograms(report.histograms, report.labels, images.classes),
        )
        yield (
            "prototypes.png",
            lambda: prototype_sheet(images, transports(evaluation.model, images)),
        )


def predict_classes(
    model: PooledModel, dataset: Dataset, loading: Loading = Loading()
) -> ZeroShotReport:
    """Evaluate histograms and vectors of labelled images [GSP Sec. 5.1, supplementary 2.3]."""
    pool = model.pool
    if not isinstance(pool, GSP):
        raise ValueError(f"zero-shot prediction reads the prototypes of GSP, not of {model.label}")

    def vectors_and_histograms(features: Features) -> Tensor:
        u, z = pool.with_histogram(model.pooled_tokens(features))
        return torch.cat([model.refine(u), z], 1)  # (B, D + m)

    outputs = predict_dataset(model, vectors_and_histograms, dataset, loading)
    labels = outputs.labels(dataset)
    count = pool.prototypes.shape[0]
    histograms = outputs.vectors[:, -count:]
    shares = zero_shot_prediction(histograms, outputs.vectors[:, :-count], labels)
    return ZeroShotReport(
        scores={name: 100 * share for name, share in shares.items()},
        classes=len(labels.unique()),
        images=len(labels),
        unreadable=outputs.bad,
        histograms=histograms,
        labels=labels,
    )


@torch.inference_mode()
def transports(model: PooledModel, dataset: Dataset) -> dict[int, npt.NDArray[Any]]:
    """Return what each prototype takes of each cell (H, W, m), of some images of some classes."""
    assert isinstance(model.pool, GSP)
    labels = dataset.labels
    rows = [np.flatnonzero(labels == label)[:EACH] for label in np.unique(labels)[:CLASSES]]
    positions = np.concatenate(rows)
    cells = dict[int, npt.NDArray[Any]]()
    for batch in load(dataset.select(positions), model.backbone.preprocessing.whole(), EACH):
        features = model.features(batch.images.to(device_of(model)))
        tokens = model.pooled_tokens(features)
        pi = model.pool.transport(tokens)[1][:, -features.tokens.shape[1] :]  # (B, N, m)
        places = positions[batch.indices].tolist()
        cells.update(zip(places, pi.unflatten(1, features.grid).cpu().numpy(), strict=True))
    return cells
