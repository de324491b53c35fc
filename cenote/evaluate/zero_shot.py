"""Zero-shot prediction: GSP's prototypes of some classes predict the mean vectors of others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..backbones import Features
from ..data import Dataset
from ..metrics import zero_shot_prediction
from ..models import PooledModel
from ..pooling.gsp import GSP
from ..predict.embedding import Loading, predict_dataset
from .protocol import Evaluation, Figure, Protocol, Report, count_images, left_out


@dataclass
class ZeroShotReport(Report):
    """Scores in percent of `cenote.metrics.zero_shot_prediction`, means over 1000 random halves."""

    scores: dict[str, float]
    classes: int
    images: int
    unreadable: list[str]

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
    one_class = True

    def run(self, evaluation: Evaluation) -> ZeroShotReport:
        test = evaluation.test.select(evaluation.test.labels >= 0)
        with evaluation.loading("zero-shot", len(test)) as loading:
            return predict_classes(evaluation.model, test, loading)


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
    shares = zero_shot_prediction(outputs.vectors[:, -count:], outputs.vectors[:, :-count], labels)
    return ZeroShotReport(
        scores={name: 100 * share for name, share in shares.items()},
        classes=len(labels.unique()),
        images=len(labels),
        unreadable=outputs.bad,
    )
