"""ImageNet-A and ImageNet-R: a model of ImageNet's 1000 classes is asked for one of 200."""

from __future__ import annotations

from typing import Any

import torch

from ..data import Dataset
from ..models import PooledModel
from .marks import accuracy, best_of_those, known_to, mark, model_numbers


def among_own_classes(model: PooledModel, dataset: Dataset, **options: Any) -> dict[str, Any]:
    """Accuracy in percent where only the data set's own classes may be answered (`batch`, `workers`, `progress`)."""
    if model.head is None:
        raise ValueError("a model without a head tells no classes")
    numbers = model_numbers(model, dataset)
    known, left_out = known_to(dataset, numbers)
    present = torch.zeros(len(numbers), dtype=torch.bool)
    present[torch.from_numpy(known.labels)] = True
    marks = mark(model, known, best_of_those(torch.where(present, numbers, -1)), **options)
    if len(marks.bad) == len(known):
        raise ValueError(f"no image of {dataset.name} could be read: {marks.bad[0]}")
    return {
        "accuracy": accuracy(marks),
        "classes": int(present.sum()),
        "images": len(marks.marks) - len(marks.bad),
        "left_out": left_out,
        "unreadable": marks.bad,
    }
