"""Which images train, which choose, and which judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..data import Dataset
from ..data.digests import digest_of

TRAIN, VAL, TEST = ("train", "trainval", "train2017"), ("val", "val2017"), ("test",)
MANY_TIMES = 10  # the largest class against the smallest, from where it is said


class Splits(NamedTuple):
    train: Dataset
    val: Dataset
    test: Dataset | None


def split(
    dataset: Dataset, share: float = 0.2, seed: int = 0, say: Callable[[str], None] = print
) -> Splits:
    """The data set's own splits; what is missing is made, and said.

    A validation split is `share` of each class, chosen by the digest of the images' names: the same on every machine.
    """
    labelled = dataset.select(dataset.labels >= 0)
    if len(labelled) < len(dataset):
        say(
            f"{len(dataset) - len(labelled)} of {len(dataset)} images have no class and are left out"
        )
    if not len(labelled):
        raise ValueError(
            f"{dataset.name} has no image with a class: nothing can be learned from it"
        )
    train, val, test = (_first(labelled, names) for names in (TRAIN, VAL, TEST))
    if train is None:
        if any(name is not None for name in labelled.splits):
            raise ValueError(
                f"{dataset.name} has splits {', '.join(map(str, labelled.splits))}, but none to train on"
            )
        train = labelled
    if val is None:
        held = _held_out(train, share, seed)
        if not held.any():
            raise ValueError(
                f"no class of {dataset.name} has two images to train on: nothing can be held out"
            )
        train, val = train.select(~held), train.select(held)
        say(
            f"no validation split: {len(val)} images of the training split are held out ({share:.0%} of each class)"
        )
    if len(np.unique(train.labels)) < 2:
        raise ValueError(
            f"all training images of {dataset.name} are of one class: there is nothing to tell apart"
        )
    _report_balance(train, say)
    return Splits(train, val, test)


def _first(dataset: Dataset, names: tuple[str, ...]) -> Dataset | None:
    return next((dataset.split(name) for name in names if name in dataset.splits), None)


def _held_out(dataset: Dataset, share: float, seed: int) -> np.ndarray:
    """A share of each class, at least one image of each class that has two."""
    if not 0 < share < 1:
        raise ValueError(f"the share that is held out lies between 0 and 1, got {share}")
    held, labels = np.zeros(len(dataset), bool), dataset.labels
    keys = np.array(
        [
            digest_of(f"{seed}/{i if not r.image else r.image}".encode())
            for i, r in enumerate(dataset)
        ]
    )
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = min(max(round(share * len(members)), 1), len(members) - 1)
        held[members[np.argsort(keys[members], kind="stable")[:count]]] = True
    return held


def _report_balance(train: Dataset, say: Callable[[str], None]) -> None:
    counts = np.bincount(train.labels, minlength=len(train.classes))
    empty = [name for name, count in zip(train.classes, counts, strict=True) if not count]
    if empty:
        say(
            f"{len(empty)} classes have no training image: {', '.join(empty[:5])}{' ...' if empty[5:] else ''}"
        )
    present = counts[counts > 0]
    if present.max() >= MANY_TIMES * present.min():
        smallest, largest = (
            train.classes[int(i)]
            for i in (np.where(counts, counts, counts.max()).argmin(), counts.argmax())
        )
        say(
            f"classes are unbalanced: '{largest}' has {present.max()} training images, '{smallest}' {present.min()}"
        )
