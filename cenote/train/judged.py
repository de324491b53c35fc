"""Which images a saved model may be judged on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from ..data import Dataset
from .fit import fingerprint
from .splits import TRAIN, VAL, Splits, split


class Judged(NamedTuple):
    """The images that judge, and others apart from them where there are any."""

    name: str
    judged: Dataset
    train: Dataset | None
    val: Dataset | None


def judged_parts(folder: Path, dataset: Dataset, name: str | None = None) -> Judged:
    """A run's own data is judged on what the run did not train on, other data without a test split on all of it."""
    own = own_splits(folder, dataset)
    if name is None and own is not None:
        if own.test is None:
            return Judged("val", own.val, own.train, None)
        return Judged("test", own.test, own.train, own.val)
    known = dataset.splits
    if name is None and "test" in known:
        name = "test"
    if name is None:
        return Judged("all splits", dataset, None, None)
    train, val = (
        next((dataset.split(n) for n in names if n in known and n != name), None)
        for names in (TRAIN, VAL)
    )
    return Judged(
        name,
        dataset.split(name),
        train,
        own.val if own is not None and name not in (*TRAIN, *VAL) else val,
    )


def own_splits(folder: Path, dataset: Dataset) -> Splits | None:
    """The splits of the run in `folder`, if this is the data it was trained on."""
    try:
        report = json.loads((folder / "results.json").read_text())
        found = split(dataset, seed=report["settings"]["seed"], say=lambda sentence: None)
        return found if fingerprint(found) == report["data"] else None
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
    ):  # no run of ours, or data that nothing can be held out of
        return None
