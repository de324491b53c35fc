"""Classification: top-1 and top-5 accuracy, or mAP if images have several classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..data import Dataset
from ..metrics import class_average_precisions
from ..models import PooledModel
from ..predict.embedding import Loading, predict_logits
from ..report.blocks import Block, Table, TableColumn
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


@dataclass
class MultiLabelReport(Report):
    """Average precision in percent of the classes that some image has.

    `prior` is the mAP of equal scores for all images: the mean share of images of a class.
    """

    mAP: float
    prior: float
    average_precision: dict[str, float]  # by class
    images: int
    unknown_classes: list[str]  # that the model does not know
    unreadable: list[str]

    def table(self, split: str) -> str:
        lines = left_out(self.unreadable)
        if self.unknown_classes:
            names = ", ".join(self.unknown_classes[:5]) + " ..." * (len(self.unknown_classes) > 5)
            lines.append(f"left out: {len(self.unknown_classes)} unknown classes: {names}")
        classes = f"{len(self.average_precision)} classes of {count_images(self.images)} of {split}"
        lines.append(
            f"{classes}: mAP {self.mAP:.2f} (without looking at the images {self.prior:.2f})"
        )
        by_precision = sorted(self.average_precision.items(), key=lambda item: -item[1])
        best = ", ".join(f"{name} {value:.1f}" for name, value in by_precision[:5])
        worst = ", ".join(f"{name} {value:.1f}" for name, value in by_precision[5:][-5:])
        return "\n".join([*lines, f"  best: {best}", *([f"  worst: {worst}"] if worst else [])])

    def figures(self) -> list[Figure]:
        unit = f"% of {self.images} images"
        return [
            Figure("mAP", self.mAP, unit),
            Figure("mAP without looking at the images", self.prior, unit),
        ]


class Classify(Protocol[ClassificationReport | MultiLabelReport], name="classify"):
    def run(self, evaluation: Evaluation) -> ClassificationReport | MultiLabelReport:
        model, test = evaluation.model, evaluation.test
        with evaluation.loading("classify", len(test)) as loading:
            if model.multi_label or test.multi_label:
                return classify_several(model, test, loading)
            return classify(model, test, loading)

    def blocks(
        self, evaluation: Evaluation, report: ClassificationReport | MultiLabelReport
    ) -> list[Block]:
        if isinstance(report, ClassificationReport):
            return []
        columns = (TableColumn("class"), TableColumn("average precision (%)", True))
        rows = tuple((name, round(value, 1)) for name, value in report.average_precision.items())
        return [Table("Average precision of each class", columns, rows)]


def classify(
    model: PooledModel, dataset: Dataset, loading: Loading = Loading()
) -> ClassificationReport:
    """Compute top-1 and top-5 accuracy."""
    _check_head(model)
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


def classify_several(
    model: PooledModel, dataset: Dataset, loading: Loading = Loading()
) -> MultiLabelReport:
    """Compute the average precision of each class; the model or the data set is multi-label."""
    _check_head(model)
    labelled = dataset.select(dataset.labelled)
    outputs = predict_logits(model, labelled, loading)
    indices = class_indices(model, dataset)
    known = (indices >= 0).numpy()
    targets = labelled.class_matrix[outputs.positions.numpy()][:, known]
    present = targets.any(0)
    if not present.any():
        raise ValueError(f"no image of {dataset.name} has a class that the model knows")
    logits = outputs.vectors  # not their sigmoid: many would be equal to 1
    if not model.multi_label:
        logits = logits.log_softmax(1)
    values = 100 * class_average_precisions(logits[:, indices[known]], targets)[present]
    names = np.array(dataset.classes)[known][present].tolist()
    return MultiLabelReport(
        mAP=float(values.mean()),
        prior=100 * float(targets.mean(0)[present].mean()),
        average_precision=dict(zip(names, values.tolist(), strict=True)),
        images=len(targets),
        unknown_classes=[name for name, k in zip(dataset.classes, known, strict=True) if not k],
        unreadable=outputs.bad,
    )


def _check_head(model: PooledModel) -> None:
    if model.head is None:
        raise ValueError("a model without a head predicts no classes: evaluate it with knn")


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
