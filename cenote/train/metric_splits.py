"""Which classes train, which choose an epoch, and which judge: no class is in two of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..data import Dataset
from .class_folds import first_half, folds

FOLDS = 4  # Musgrave et al. (2020)


class Halves(NamedTuple):
    """Classes to learn from, and classes to judge by."""

    train: Dataset
    own_val: Dataset | None  # the data's own validation split, if its classes are its own
    test: Dataset
    gallery: (
        Dataset | None
    )  # where the test images are looked for, if not among themselves: In-Shop


class MetricSplits(NamedTuple):
    train: Dataset
    val: Dataset | None
    val_gallery: Dataset | None
    test: Dataset
    gallery: Dataset | None


def halves(data: Dataset) -> Halves:
    """The data's own splits where their classes are apart; else the first half of all classes trains."""
    labelled = data.select(data.labels >= 0)
    if not len(labelled):
        raise ValueError(f"{data.name} has no image with a class: nothing can be learned from it")
    names = labelled.splits
    if {"train", "query", "gallery"} <= names.keys():
        return Halves(
            labelled.split("train"), None, labelled.split("query"), labelled.split("gallery")
        )
    if {"train", "test"} <= names.keys() and _apart(
        labelled.split("train"), labelled.split("test")
    ):
        test = labelled.split("test")
        train = labelled.select(
            ~np.isin(labelled.rows, test.rows) & ~np.isin(labelled.labels, test.labels)
        )
        val = labelled.split("val") if "val" in names else None
        if val is None or not _apart(labelled.split("train"), val) or not _apart(val, test):
            return Halves(train, None, test, None)
        return Halves(train.select(~np.isin(train.rows, val.rows)), val, test, None)
    train, test = first_half(labelled)
    return Halves(train, None, test, None)


def metric_splits(parts: Halves, validate: str, say: Callable[[str], None] = print) -> MetricSplits:
    """`validate`: some "classes" of the training half choose the epoch, the "test" half does, or it is the "last"."""
    train, val, val_gallery = parts.train, None, None
    if validate == "test":
        val, val_gallery = parts.test, parts.gallery
    elif validate == "classes" and parts.own_val is not None:
        val = parts.own_val
    elif validate == "classes":
        try:
            train, val = folds(parts.train, FOLDS)[-1]
        except ValueError:
            count = len(np.unique(parts.train.labels))
            say(
                f"{count} classes to learn from are too few to hold some out: the last epoch is kept, not the best"
            )
    return MetricSplits(train, val, val_gallery, parts.test, parts.gallery)


def fold_splits(parts: Halves) -> list[MetricSplits]:
    """The fair protocol: each quarter of the classes chooses for a model that learns from the others."""
    train = parts.train
    return [
        MetricSplits(one, held, None, parts.test, parts.gallery)
        for one, held in folds(train, FOLDS)
    ]


def check_findable(splits: MetricSplits) -> None:
    """Before anything is trained: some image that judges has another one of its class to find."""
    for name, queries, gallery, instead in (
        ("validation", splits.val, splits.val_gallery, "; --validate last needs none"),
        ("test", splits.test, splits.gallery, ""),
    ):
        if queries is None:
            continue
        known, counts = np.unique(
            (queries if gallery is None else gallery).labels, return_counts=True
        )
        if not np.isin(known[counts > (gallery is None)], queries.labels).any():
            where = "another image" if gallery is None else "an image in the gallery"
            raise ValueError(
                f"no {name} image has {where} of its class: nothing can be judged{instead}"
            )


def class_names(dataset: Dataset | None) -> list[str]:
    """Of the classes that it has images of."""
    return (
        []
        if dataset is None
        else [dataset.classes[int(i)] for i in np.unique(dataset.labels) if i >= 0]
    )


def _apart(one: Dataset, other: Dataset) -> bool:
    return not np.intersect1d(one.labels, other.labels).size
