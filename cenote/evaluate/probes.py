"""What a frozen model's vectors tell about classes: k nearest neighbours, and a linear probe."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data import Dataset
from ..metrics.retrieval import knn_accuracy
from ..models import PooledModel
from ..predict.embedding import Loading, embed_dataset
from .protocol import Evaluation, Figure, Protocol, Report

KS = (10, 20)  # numbers of neighbours
# Strongest first: each solution is the start of the next one.
DECAYS = (1e1, 1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)


@dataclass
class KnnReport(Report):
    """Accuracy in percent for each number of neighbours."""

    accuracy: dict[int, float]
    unreadable: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        return dict(self.by_name())

    def by_name(self) -> dict[str, float]:
        return {f"knn_{k}": share for k, share in self.accuracy.items()}

    def table(self, split: str) -> str:
        return "\n".join(f"{k} nearest neighbours: {v:.2f}" for k, v in self.accuracy.items())

    def figures(self) -> list[Figure]:
        return [Figure(f"{k} nearest neighbours", v, "%") for k, v in self.accuracy.items()]


class Knn(Protocol[KnnReport], name="knn"):
    one_class = True

    def run(self, evaluation: Evaluation) -> KnnReport:
        memory = evaluation.training_images("k-NN")
        with evaluation.loading("knn", len(memory) + len(evaluation.test)) as loading:
            return knn(evaluation.model, memory, evaluation.test, loading)


def knn(
    model: PooledModel, memory: Dataset, queries: Dataset, loading: Loading = Loading()
) -> KnnReport:
    """Classify the labelled queries by the votes of the nearest labelled images of the memory."""
    memory, queries = (images.select(images.labels >= 0) for images in (memory, queries))
    voting, voted = (embed_dataset(model, images, loading) for images in (memory, queries))
    shares = knn_accuracy(
        voting.vectors, voting.labels(memory), voted.vectors, voted.labels(queries), KS
    )
    return KnnReport({k: 100 * share for k, share in shares.items()})


@dataclass
class LinearReport(Report):
    """Accuracies in percent on test and validation images, and the weight decay chosen on val."""

    linear: float
    linear_val: float
    linear_decay: float
    unreadable: list[str] = field(default_factory=list)
    not_in_json = ("unreadable",)

    def table(self, split: str) -> str:
        return f"linear probe: {self.linear:.2f} (decay {self.linear_decay:g})"

    def figures(self) -> list[Figure]:
        return [Figure("linear probe", self.linear, "%")]


class LinearProbe(Protocol[LinearReport], name="linear"):
    one_class = True

    def run(self, evaluation: Evaluation) -> LinearReport:
        train, val = evaluation.training_images("a linear probe"), evaluation.splits.val
        if val is None:
            raise ValueError(
                f"a linear probe needs validation images in {evaluation.test.name} for its decay"
            )
        splits = train, val, evaluation.test
        with evaluation.loading("linear probe", sum(map(len, splits))) as loading:
            return linear_probe(evaluation.model, *splits, loading)


def linear_probe(
    model: PooledModel, train: Dataset, val: Dataset, test: Dataset, loading: Loading = Loading()
) -> LinearReport:
    """Train a logistic regression on `train` with the weight decay that is best on `val`."""
    splits = [images.select(images.labels >= 0) for images in (train, val, test)]
    outputs = [embed_dataset(model, images, loading) for images in splits]
    y, y_val, y_test = (
        output.labels(images) for output, images in zip(outputs, splits, strict=True)
    )
    deviation, mean = torch.std_mean(outputs[0].vectors, 0)
    scale = torch.where(deviation > 0, deviation, 1)  # one decay for channels of every scale
    x, x_val, x_test = ((output.vectors - mean) / scale for output in outputs)
    classes = len(train.classes)
    weights = torch.zeros(classes, x.shape[1] + 1)
    best_share, best_weights, best_decay = -1.0, weights, DECAYS[0]
    for decay in DECAYS:
        weights = regress(x, y.clone(), classes, decay, weights)
        share = _accuracy(weights, x_val, y_val)
        if share > best_share:
            best_share, best_weights, best_decay = share, weights, decay
    return LinearReport(_accuracy(best_weights, x_test, y_test), best_share, best_decay)


def regress(
    x: Tensor, labels: Tensor, classes: int, decay: float, start: Tensor | None = None
) -> Tensor:
    """Minimize cross-entropy + decay / 2 |W|^2, which is convex: (classes, D + 1), bias last."""
    weights = torch.zeros(classes, x.shape[1] + 1) if start is None else start.clone()
    weights = weights.to(x).requires_grad_()
    solver = torch.optim.LBFGS(
        [weights], max_iter=200, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        solver.zero_grad()
        penalty = decay / 2 * weights[:, :-1].square().sum()
        loss = F.cross_entropy(_logits(weights, x), labels) + penalty
        loss.backward()
        return loss

    solver.step(closure)
    return weights.detach()


def _logits(weights: Tensor, x: Tensor) -> Tensor:
    return torch.addmm(weights[:, -1], x, weights[:, :-1].T)


def _accuracy(weights: Tensor, x: Tensor, labels: Tensor) -> float:
    return 100 * float((_logits(weights, x).argmax(1) == labels).float().mean())
