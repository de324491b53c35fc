"""k-nearest-neighbour accuracy of a model's vectors, without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..data import Dataset
from ..metrics.neighbours import knn_accuracy
from ..models import PooledModel
from ..predict.embedding import embed_dataset
from .protocol import Evaluation, Figure, Protocol, Report, register


@dataclass
class KnnReport(Report):
    """Accuracy in percent for each number of neighbours."""

    accuracy: dict[int, float]
    unreadable: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {f"knn_{k}": share for k, share in self.accuracy.items()}

    def table(self, split: str) -> str:
        return "\n".join(f"{k} nearest neighbours: {v:.2f}" for k, v in self.accuracy.items())

    def figures(self) -> list[Figure]:
        return [Figure(f"{k} nearest neighbours", v, "%") for k, v in self.accuracy.items()]


@register("knn")
class Knn(Protocol[KnnReport]):
    def run(self, evaluation: Evaluation) -> KnnReport:
        memory = evaluation.training_images("k-NN")
        return knn(
            evaluation.model,
            memory,
            evaluation.test,
            batch=evaluation.batch,
            workers=evaluation.workers,
        )


def knn(
    model: PooledModel,
    memory: Dataset,
    queries: Dataset,
    ks: Sequence[int] = (10, 20),
    batch: int = 64,
    workers: int = 0,
) -> KnnReport:
    """Classify the labelled queries by the votes of the nearest labelled images of the memory."""
    memory, queries = (images.select(images.labels >= 0) for images in (memory, queries))
    voting, voted = (embed_dataset(model, images, batch, workers) for images in (memory, queries))
    shares = knn_accuracy(
        voting.vectors, voting.labels(memory), voted.vectors, voted.labels(queries), ks
    )
    return KnnReport({k: 100 * share for k, share in shares.items()})
