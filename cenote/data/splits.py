"""Split a data set into images, or classes, to train on, to validate on and to test on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .checks import check
from .dataset import Dataset
from .digests import digest_of
from .table import encode_name

TRAIN, VAL, TEST = ("train", "trainval", "train2017"), ("val", "val2017"), ("test",)
UNBALANCED = 10  # ratio of the largest to the smallest class from which a message is logged
FOLDS = 4  # Musgrave et al. (2020)
MIN_CLASSES = 2  # of a split: among images of one class, every neighbour is right
log = logging.getLogger(__name__)


class Splits(NamedTuple):
    train: Dataset
    val: Dataset
    test: Dataset | None

    def fingerprint(self) -> str:
        """Return a digest of the names and classes of the training and validation images."""
        records = (record for split in (self.train, self.val) for record in split)
        names = (f"{r.image}\0{'|'.join(r.labels or ()) or r.label}\n" for r in records)
        return digest_of(*(encode_name(name) for name in names)).hex()


def split(dataset: Dataset, share: float = 0.2, seed: int = 0, quiet: bool = False) -> Splits:
    """Return the data set's splits; without a validation split, hold out `share` of each class.

    The choice depends on the digests of the images' names: it is the same on every machine. What is
    held out or missing is logged unless `quiet`.
    """
    messages: list[str] = []
    labelled = dataset.select(dataset.labelled)
    if len(labelled) < len(dataset):
        missing = len(dataset) - len(labelled)
        messages.append(f"{missing} of {len(dataset)} images have no class and are not used")
    check(len(labelled), f"{dataset.name} has no labelled image: make one subfolder per class")
    train, val, test = named_splits(labelled)
    if val is None:
        held_out = _hold_out(train, share, seed)
        train, val = train.select(~held_out), train.select(held_out)
        messages.append(
            f"no validation split: {len(val)} images of the training split are held out "
            f"({share:.0%} of each class)"
        )
    classes = np.count_nonzero(train.class_counts)
    check(classes > 1, f"all training images of {dataset.name} have the same class")
    messages += _balance_messages(train)
    if not quiet:
        for message in messages:
            log.info(message)
    return Splits(train, val, test)


def refuse_several_classes(dataset: Dataset, purpose: str) -> None:
    """Raise a ValueError if images may have several classes."""
    several = f"the images of {dataset.name} have several (cenote fit can learn them)"
    check(not dataset.multi_label, f"{purpose} needs one class per image, but {several}")


def named_splits(dataset: Dataset) -> tuple[Dataset, Dataset | None, Dataset | None]:
    """Return the splits to train, validate and test on; without names, all images train."""
    train, val, test = (
        next((dataset.split(name) for name in names if name in dataset.splits), None)
        for names in (TRAIN, VAL, TEST)
    )
    if train is None:
        names = ", ".join(map(str, dataset.splits))
        unnamed = all(name is None for name in dataset.splits)
        check(unnamed, f"{dataset.name} has splits {names}, but none to train on")
        train = dataset
    return train, val, test


def _hold_out(dataset: Dataset, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Select a share of each class, at least one image of each class that has two.

    Of several classes of an image, the rarest decides.
    """
    check(0 < share < 1, f"the share to hold out must be between 0 and 1, got {share}")
    held_out, decided = np.zeros(len(dataset), bool), np.zeros(len(dataset), bool)
    names = (record.image or str(i) for i, record in enumerate(dataset))
    keys = np.array([digest_of(encode_name(f"{seed}/{name}")) for name in names])
    for members in _members(dataset):
        count = min(max(round(share * len(members)), 1), len(members) - 1)
        count = max(count - int(held_out[members].sum()), 0)
        free = members[~decided[members]]
        held_out[free[np.argsort(keys[free], kind="stable")[:count]]] = True
        decided[members] = True
    check(held_out.any(), f"no class of {dataset.name} has two images: none can be held out")
    return held_out


def _members(dataset: Dataset) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the positions of the images of each class, the rarest first."""
    if not dataset.multi_label:
        labels, counts = np.unique(dataset.labels, return_counts=True)
        for label in labels[np.argsort(counts, kind="stable")]:
            yield np.flatnonzero(dataset.labels == label)
        return
    matrix = dataset.class_matrix
    matrix = np.hstack([matrix, ~matrix.any(1, keepdims=True)])  # images without any class
    for column in np.argsort(matrix.sum(0), kind="stable"):
        members = np.flatnonzero(matrix[:, column])
        if len(members):
            yield members


def _balance_messages(train: Dataset) -> list[str]:
    messages = []
    counts = train.class_counts
    empty = [name for name, count in zip(train.classes, counts, strict=True) if not count]
    if empty:
        names = ", ".join(empty[:5]) + " ..." * (len(empty) > 5)
        messages.append(f"{len(empty)} classes have no training image: {names}")
    present = np.flatnonzero(counts)
    smallest, largest = present[counts[present].argmin()], present[counts[present].argmax()]
    if counts[largest] >= UNBALANCED * counts[smallest]:
        messages.append(
            f"classes are unbalanced: '{train.classes[largest]}' has {counts[largest]} training"
            f" images, '{train.classes[smallest]}' {counts[smallest]}"
        )
    return messages


# Splits by class for metric learning: no class is in two of training, validation and test.


class ClassSplits(NamedTuple):
    """Splits without common classes; a split without a gallery is searched in itself."""

    train: Dataset
    val: Dataset | None  # selects the epoch; None: the last epoch is kept
    test: Dataset
    gallery: Dataset | None  # searched by the test images
    val_gallery: Dataset | None = None


def first_half(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """Train on the first half of the classes, in the order of `classes`, and hold out the others.

    The middle one of an odd number trains.
    """
    present = _present_classes(dataset, 2 * MIN_CLASSES, "two halves")
    return _without_and_with(dataset, present[-(-len(present) // 2) :])


def folds(dataset: Dataset, count: int = FOLDS) -> list[tuple[Dataset, Dataset]]:
    """Hold out each of `count` runs of classes once; four in Musgrave et al., 2020."""
    present = _present_classes(dataset, count * MIN_CLASSES, f"{count} folds")
    return [_without_and_with(dataset, classes) for classes in np.array_split(present, count)]


def class_splits(data: Dataset) -> ClassSplits:
    """Return the data set's splits if they share no class; else train on half of the classes."""
    refuse_several_classes(data, "metric learning")
    labelled = data.select(data.labels >= 0)
    check(len(labelled), f"{data.name} has no labelled image: nothing can be learned from it")
    names = labelled.splits.keys()
    if {"train", "query", "gallery"} <= names:
        query, gallery = labelled.split("query"), labelled.split("gallery")
        return ClassSplits(labelled.split("train"), None, query, gallery)
    if not {"train", "test"} <= names or not _share_no_class(
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


def image_splits(data: Dataset) -> ClassSplits:
    """Return the training images and the test images of all classes."""
    refuse_several_classes(data, "metric learning")
    labelled = data.select(data.labels >= 0)
    return ClassSplits(labelled.split("train"), None, labelled.split("test"), None)


def metric_splits(splits: ClassSplits, validate: str) -> ClassSplits:
    """Choose the images that select the epoch.

    `validate`: "classes" holds out a quarter of the training classes unless there is a validation
    split, "fifth" a fifth of them in any case [GSP supplementary 1.1.2], "test" uses the test split,
    and "last" keeps the last epoch.
    """
    if validate == "test":
        return splits._replace(val=splits.test, val_gallery=splits.gallery)
    if validate == "last":
        return splits._replace(val=None)
    if splits.val is None or validate == "fifth":
        try:
            train, val = folds(splits.train, {"classes": 4, "fifth": 5}[validate])[-1]
        except ValueError:
            count = len(np.unique(splits.train.labels))
            problem = "are too few to hold some out: keeping the last epoch, not the best"
            log.info("%d training classes %s", count, problem)
        else:
            return splits._replace(train=train, val=val)
    return splits


def fold_splits(splits: ClassSplits) -> list[ClassSplits]:
    """Return the splits of the four models of the fair protocol, each validated on its own fold."""
    return [splits._replace(train=train, val=val) for train, val in folds(splits.train)]


def check_matches(splits: ClassSplits) -> None:
    """Raise ValueError if no query of a split has another image of its class to find."""
    for name, queries, gallery, remedy in (
        ("validation", splits.val, splits.val_gallery, "; use --validate last"),
        ("test", splits.test, splits.gallery, ""),
    ):
        if queries is None:
            continue
        searched, needed, match = queries, 2, "another image"
        if gallery is not None:
            searched, needed, match = gallery, 1, "an image in the gallery"
        labels, counts = np.unique(searched.labels, return_counts=True)
        check(
            np.isin(labels[counts >= needed], queries.labels).any(),
            f"no {name} image has {match} of its class to find{remedy}",
        )


def class_names(dataset: Dataset | None) -> list[str]:
    """Return the names of the classes that have images."""
    if dataset is None:
        return []
    return [dataset.classes[int(i)] for i in np.unique(dataset.labels) if i >= 0]


def _present_classes(dataset: Dataset, needed: int, purpose: str) -> npt.NDArray[np.int64]:
    present = np.unique(dataset.labels)
    present = present[present >= 0]  # unlabelled images are in no split
    counts = f"has images of {len(present)} classes: {purpose} need at least {needed}"
    check(len(present) >= needed, f"{dataset.name} {counts}")
    return present


def _without_and_with(dataset: Dataset, classes: npt.NDArray[np.int64]) -> tuple[Dataset, Dataset]:
    held_out = np.isin(dataset.labels, classes)
    return dataset.select(~held_out & (dataset.labels >= 0)), dataset.select(held_out)


def _share_no_class(first: Dataset, second: Dataset) -> bool:
    return not np.intersect1d(first.labels, second.labels).size
