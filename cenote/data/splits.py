"""Split a data set into images to train on, to validate on and to test on."""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .dataset import Dataset
from .digests import digest_of

TRAIN, VAL, TEST = ("train", "trainval", "train2017"), ("val", "val2017"), ("test",)
UNBALANCED = 10  # ratio of the largest to the smallest class from which a message is logged
log = logging.getLogger(__name__)


class Splits(NamedTuple):
    train: Dataset
    val: Dataset
    test: Dataset | None

    def fingerprint(self) -> str:
        """Return a digest of the names and classes of the training and validation images."""
        names = (f"{r.image}\0{r.label}\n" for split in (self.train, self.val) for r in split)
        return digest_of(*(name.encode("utf-8", "surrogateescape") for name in names)).hex()


def split(dataset: Dataset, share: float = 0.2, seed: int = 0, quiet: bool = False) -> Splits:
    """Return the data set's splits; without a validation split, hold out `share` of each class.

    The choice depends on the digests of the images' names: it is the same on every machine. What is
    held out or missing is logged unless `quiet`.
    """
    messages: list[str] = []
    labelled = dataset.select(dataset.labels >= 0)
    if len(labelled) < len(dataset):
        missing = len(dataset) - len(labelled)
        messages.append(f"{missing} of {len(dataset)} images have no class and are not used")
    if not len(labelled):
        raise ValueError(f"{dataset.name} has no image with a class to train on")
    train, val, test = (_first_split(labelled, names) for names in (TRAIN, VAL, TEST))
    if train is None:
        if any(name is not None for name in labelled.splits):
            names = ", ".join(map(str, labelled.splits))
            raise ValueError(f"{dataset.name} has splits {names}, but none to train on")
        train = labelled
    if val is None:
        held_out = _hold_out(train, share, seed)
        train, val = train.select(~held_out), train.select(held_out)
        messages.append(
            f"no validation split: {len(val)} images of the training split are held out "
            f"({share:.0%} of each class)"
        )
    if len(np.unique(train.labels)) < 2:
        raise ValueError(f"all training images of {dataset.name} have the same class")
    messages += _balance_messages(train)
    if not quiet:
        for message in messages:
            log.info(message)
    return Splits(train, val, test)


def _first_split(dataset: Dataset, names: tuple[str, ...]) -> Dataset | None:
    return next((dataset.split(name) for name in names if name in dataset.splits), None)


def _hold_out(dataset: Dataset, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Select a share of each class, at least one image of each class that has two."""
    if not 0 < share < 1:
        raise ValueError(f"the share to hold out must be between 0 and 1, got {share}")
    held_out, labels = np.zeros(len(dataset), bool), dataset.labels
    names = (record.image or str(i) for i, record in enumerate(dataset))
    keys = np.array([digest_of(f"{seed}/{name}".encode()) for name in names])
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = min(max(round(share * len(members)), 1), len(members) - 1)
        held_out[members[np.argsort(keys[members], kind="stable")[:count]]] = True
    if not held_out.any():
        raise ValueError(f"no class of {dataset.name} has two images: none can be held out")
    return held_out


def _balance_messages(train: Dataset) -> list[str]:
    messages = []
    counts = np.bincount(train.labels, minlength=len(train.classes))
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
