"""Metric learning is judged on classes that it has not seen: whole classes train, choose or judge, never images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..data import Dataset

LEAST = 2  # classes of a part: among images of one class, every neighbour is right


class ClassSplit(NamedTuple):
    train: Dataset
    held: Dataset  # to choose by, or to judge by


def first_half(dataset: Dataset) -> ClassSplit:
    """The first half of the classes trains, in the order of `classes`, and the second tests; an odd one trains."""
    present = _present(dataset, 2 * LEAST, "two halves")
    return _apart(dataset, present[-(-len(present) // 2) :])


def folds(dataset: Dataset, number: int = 4) -> list[ClassSplit]:
    """Each of `number` runs of classes, as equal as can be, is held out once (Musgrave et al., 2020)."""
    if number < 2:
        raise ValueError(f"folds are at least 2, got {number}")
    present = _present(dataset, number * LEAST, f"{number} folds")
    return [_apart(dataset, run) for run in np.array_split(present, number)]


def _present(dataset: Dataset, least: int, what: str) -> npt.NDArray[np.int64]:
    present = np.unique(dataset.labels)
    present = present[present >= 0]  # images without a class are in no part
    if len(present) < least:
        raise ValueError(
            f"{dataset.name} has images of {len(present)} classes: {what} need at least {least}"
        )
    return present


def _apart(dataset: Dataset, held: npt.NDArray[np.int64]) -> ClassSplit:
    labels = dataset.labels
    out = np.isin(labels, held)
    return ClassSplit(dataset.select(~out & (labels >= 0)), dataset.select(out))
