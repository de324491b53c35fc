"""How well a model tells classes: its own answers, and those of its vectors' neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..data import Dataset
from ..data.loading import load
from ..metrics.neighbours import knn_accuracy
from ..models import PooledModel

Progress = Callable[[int], object]


class Answers:
    """What a model says of a data set's readable images."""

    def __init__(
        self, vectors: Tensor, logits: Tensor | None, labels: Tensor, bad: list[str]
    ) -> None:
        self.vectors, self.logits, self.labels, self.bad = vectors, logits, labels, bad


@torch.inference_mode()
def ask(
    model: PooledModel,
    dataset: Dataset,
    batch: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
) -> Answers:
    """Vectors and logits of every image, in order; several vectors of one image stand in a row."""
    model = model.eval()
    device = next(model.parameters()).device
    vectors, logits, labels, bad = [], [], [], []
    for found in load(dataset, model.backbone.preprocessing.transform(), batch, workers):
        bad += [sentence for _, sentence in found.bad]
        if len(found.indices):
            u = model.embed(found.images.to(device))
            vectors.append(u.flatten(1).cpu())
            labels.append(found.labels)
            if model.head is not None:
                logits.append(model.head(u).cpu())
        if progress:
            progress(len(found.indices) + len(found.bad))
    if not vectors:
        raise ValueError(
            f"no image of {dataset.name} could be read: {bad[0] if bad else 'it is empty'}"
        )
    return Answers(
        torch.cat(vectors), torch.cat(logits) if logits else None, torch.cat(labels), bad
    )


def match_labels(model: PooledModel, dataset: Dataset) -> Tensor:
    """For each class of the data set its number in the model; -1 for one that the model does not know."""
    if model.class_names is None:
        return torch.arange(len(dataset.classes))
    places = {name: number for number, name in enumerate(model.class_names)}
    found = torch.tensor([places.get(name, -1) for name in dataset.classes])
    if len(found) and (found < 0).all():
        known = ", ".join(model.class_names[:5])
        raise ValueError(
            f"the model knows none of the classes of {dataset.name}: it knows {known}, ..."
        )
    return found


def classify(model: PooledModel, dataset: Dataset, **options: Any) -> dict[str, Any]:
    """Top-1 and top-5 accuracy in percent, over images whose class the model knows."""
    if model.head is None:
        raise ValueError("a model without a head tells no classes: k-NN judges its vectors")
    labelled = dataset.select(dataset.labels >= 0)
    answers = ask(model, labelled, **options)
    assert answers.logits is not None
    labels = match_labels(model, dataset)[answers.labels]
    known = labels >= 0
    logits, labels = answers.logits[known], labels[known]
    top = logits.topk(min(5, logits.shape[1]), 1).indices == labels[:, None]
    return {
        "accuracy": 100 * float(top[:, 0].float().mean()),
        "top5": 100 * float(top.any(1).float().mean()),
        "images": len(labels),
        "unknown_class": int((~known).sum()),
        "unreadable": answers.bad,
    }


def neighbours(
    model: PooledModel,
    memory: Dataset,
    queries: Dataset,
    k: Sequence[int] = (10, 20),
    **options: Any,
) -> dict[str, float]:
    """k-NN accuracy in percent: the memory's labelled vectors vote on each query."""
    known, asked = (
        ask(model, part.select(part.labels >= 0), **options) for part in (memory, queries)
    )
    found = knn_accuracy(known.vectors, known.labels, asked.vectors, asked.labels, k)
    return {f"knn_{count}": 100 * share for count, share in found.items()}
