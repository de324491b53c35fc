"""Classification accuracy: top-1 and top-5."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..data import Dataset
from ..models import PooledModel
from ..predict.embedding import Loading, predict_logits
from .protocol import Evaluation, Figure, Protocol, Report, count_images, left_out


@dataclass
class ClassificationReport(Report):
    """Accuracies in percent over images whose class the model knows."""

    accuracy: float
    top5: float
    images: int
    unknown_class: int
    unreadable: list[str]

    def table(self, split: str) -> str:
        lines = left_out(self.unreadable, unknown_class=self.unknown_class)
        images = f"{count_images(self.images)} of {split}"
        lines.append(f"{images}: top-1 {self.accuracy:.2f}, top-5 {self.top5:.2f}")
        return "\n".join(lines)

    def figures(self) -> list[Figure]:
        unit = f"% of {self.images} images"
        return [
            Figure("top-1 accuracy", self.accuracy, unit),
            Figure("top-5 accuracy", self.top5, unit),
        ]


class Classify(Protocol[ClassificationReport], name="classify"):
    def run(self, evaluation: Evaluation) -> ClassificationReport:
        with evaluation.loading("classify", len(evaluation.test)) as loading:
            return classify(evaluation.model, evaluation.test, loading)


def classify(
    model: PooledModel, dataset: Dataset, loading: Loading = Loading()
) -> ClassificationReport:
    """Compute top-1 and top-5 accuracy."""
    if model.head is None:
        raise ValueError("a model without a head predicts no classes: evaluate it with knn")
    labelled = dataset.select(dataset.labels >= 0)
    outputs = predict_logits(model, labelled, loading)
    labels = class_indices(model, dataset)[outputs.labels(labelled)]
    has_class = labels >= 0
    logits, labels = outputs.vectors[has_class], labels[has_class]
    top = logits.topk(min(5, logits.shape[1]), 1).indices == labels[:, None]
    return ClassificationReport(
        accuracy=100 * float(top[:, 0].float().mean()),
        top5=100 * float(top.any(1).float().mean()),
        images=len(labels),
        unknown_class=int((~has_class).sum()),
        unreadable=outputs.bad,
    )


def class_indices(model: PooledModel, dataset: Dataset) -> Tensor:
    """Return the model's index of each class of the data set, -1 for a class it does not know."""
    if model.class_names is None:
        return torch.arange(len(dataset.classes))
    index_of = {name: index for index, name in enumerate(model.class_names)}
    indices = torch.tensor([index_of.get(name, -1) for name in dataset.classes])
    if len(indices) and (indices < 0).all():
        names = ", ".join(model.class_names[:5])
        raise ValueError(
            f"the model knows none of the classes of {dataset.name}: it knows {names}, ..."
        )
    return indices
