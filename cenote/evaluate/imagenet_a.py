"""ImageNet-A and ImageNet-R: a model of ImageNet's 1000 classes chooses among 200."""

from __future__ import annotations

from typing import Any

import torch

from ..data import Dataset
from ..models import PooledModel
from .per_image_correct import best_of_known, check_images, model_indices, select_known


def among_own_classes(model: PooledModel, dataset: Dataset, **options: Any) -> dict[str, Any]:
    """Compute the accuracy in percent if only the data set's classes can be predicted.

    `options`: `batch`, `workers` and `progress`.
    """
    indices = model_indices(model, dataset)
    usable, left_out = select_known(dataset, indices)
    present = torch.zeros(len(indices), dtype=torch.bool)
    present[torch.from_numpy(usable.labels)] = True
    classifier = best_of_known(torch.where(present, indices, -1))
    result = check_images(model, usable, classifier, **options)
    if not result.readable():
        raise ValueError(f"no image of {dataset.name} could be read: {result.bad[0]}")
    return {
        "accuracy": result.accuracy(),
        "classes": int(present.sum()),
        "images": result.readable(),
        "left_out": left_out,
        "unreadable": result.bad,
    }
