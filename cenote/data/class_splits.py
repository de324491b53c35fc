"""Splits by class for metric learning: no class is in two of training, validation and test."""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from . import Dataset

FOLDS = 4  # Musgrave et al. (2020)
MIN_CLASSES = 2  # of a split: among images of one class, every neighbour is right
logger = logging.getLogger(__name__)


class HeldOutClasses(NamedTuple):
    """Images of some classes to train on, and images of all other classes."""

    train: Dataset
    held_out: Dataset


class ClassSplits(NamedTuple):
    """Classes to train on, and classes to test on."""

    train: Dataset
    val: Dataset | None  # the data set's validation split, if no other split has its classes
    test: Dataset
    gallery: Dataset | None  # searched by the test images; None: they search each other


class MetricSplits(NamedTuple):
    """Splits of one training run; without `val` the last epoch is kept."""

    train: Dataset
    val: Dataset | None
    val_gallery: Dataset | None
    test: Dataset
    gallery: Dataset | None


def first_half(dataset: Dataset) -> HeldOutClasses:
    """Train on the first half of the classes, in the order of `classes`, and hold out the others.

    The middle one of an odd number trains.
    """
    present = _present_classes(dataset, 2 * MIN_CLASSES, "two halves")
    return _hold_out(dataset, present[-(-len(present) // 2) :])


def folds(dataset: Dataset, number: int = FOLDS) -> list[HeldOutClasses]:
    """Hold out each of `number` runs of classes once (Musgrave et al., 2020)."""
    if number < 2:
        raise ValueError(f"the number of folds must be at least 2, got {number}")
    present = _present_classes(dataset, number * MIN_CLASSES, f"{number} folds")
    return [_hold_out(dataset, run) for run in np.array_split(present, number)]


def class_splits(data: Dataset) -> ClassSplits:
    """Return the data set's splits if they share no class; else train on half of the classes."""
    labelled = data.select(data.labels >= 0)
    if not len(labelled):
        raise ValueError(f"{data.name} has no labelled image: nothing can be learned from it")
    names = labelled.splits
    if {"train", "query", "gallery"} <= names.keys():
        query, gallery = labelled.split("query"), labelled.split("gallery")
        return ClassSplits(labelled.split("train"), None, query, gallery)
    if not {"train", "test"} <= names.keys() or not _share_no_class(
        labelled.split("train"), labelled.split("test")
    ):
        train, test = first_half(labelled)
        return ClassSplits(train, None, test, None)
    test = labelled.split("test")
    in_test = np.isin(labelled.rows, test.rows) | np.isin(labelled.labels, test.labels)
    train = labelled.select(~in_test)
    if "val" in names:
        val = labelled.split("val")
        if _share_no_class(labelled.split("train"), val) and _share_no_class(val, test):
            return ClassSplits(train.select(~np.isin(train.rows, val.rows)), val, test, None)
    return ClassSplits(train, None, test, None)


def metric_splits(splits: ClassSplits, validate: str) -> MetricSplits:
    """Choose the images that select the epoch.

    `validate`: "classes" holds out some training classes, "test" uses the test split, and "last"
    keeps the last epoch.
    """
    train, val, val_gallery = splits.train, None, None
    if validate == "test":
        val, val_gallery = splits.test, splits.gallery
    elif validate == "classes" and splits.val is not None:
        val = splits.val
    elif validate == "classes":
        try:
            train, val = folds(splits.train)[-1]
        except ValueError:
            count = len(np.unique(splits.train.labels))
            logger.info(
                "%d training classes are too few to hold some out: keeping the last epoch, "
                "not the best",
                count,
            )
    return MetricSplits(train, val, val_gallery, splits.test, splits.gallery)


def fold_splits(splits: ClassSplits) -> list[MetricSplits]:
    """Return the splits of the four models of the fair protocol, each validated on its own fold."""
    return [
        MetricSplits(train, val, None, splits.test, splits.gallery)
        for train, val in folds(splits.train)
    ]


def check_matches(splits: MetricSplits) -> None:
    """Raise ValueError if no query of a split has another image of its class to find."""
    for name, queries, gallery, remedy in (
        ("validation", splits.val, splits.val_gallery, "; use --validate last"),
        ("test", splits.test, splits.gallery, ""),
    ):
        if queries is None:
            continue
        searched, needed = (queries, 2) if gallery is None else (gallery, 1)
        labels, counts = np.unique(searched.labels, return_counts=True)
        if not np.isin(labels[counts >= needed], queries.labels).any():
            match = "another image" if gallery is None else "an image in the gallery"
            raise ValueError(f"no {name} image has {match} of its class to find{remedy}")


def class_names(dataset: Dataset | None) -> list[str]:
    """Return the names of the classes that have images."""
    if dataset is None:
        return []
    return [dataset.classes[int(i)] for i in np.unique(dataset.labels) if i >= 0]


def _present_classes(dataset: Dataset, needed: int, purpose: str) -> npt.NDArray[np.int64]:
    present = np.unique(dataset.labels)
    present = present[present >= 0]  # unlabelled images are in no split
    if len(present) < needed:
        raise ValueError(
            f"{dataset.name} has images of {len(present)} classes: {purpose} need at least {needed}"
        )
    return present


def _hold_out(dataset: Dataset, classes: npt.NDArray[np.int64]) -> HeldOutClasses:
    held = np.isin(dataset.labels, classes)
    return HeldOutClasses(dataset.select(~held & (dataset.labels >= 0)), dataset.select(held))


def _share_no_class(first: Dataset, second: Dataset) -> bool:
    return not np.intersect1d(first.labels, second.labels).size
