"""Which images a saved model may be judged on."""

from __future__ import annotations

import json
from pathlib import Path

from ..data import Dataset
from .fit import fingerprint
from .splits import TRAIN, Splits, split


def parts_of(folder: Path, dataset: Dataset, name: str | None = None) -> tuple[str, Dataset, Dataset | None]:
    """The name of a part, its images, and training images apart from them where there are any.

    A run's own data is judged on what the run did not train on, other data without a test split on all of it.
    """
    own = _own_splits(folder, dataset)
    if name is None and own is not None:
        judged = ("val", own.val) if own.test is None else ("test", own.test)
        return (*judged, own.train)
    known = dataset.splits
    if name is None and "test" in known:
        name = "test"
    memory = next((dataset.split(n) for n in TRAIN if n in known and n != name), None)
    if name is not None:
        return name, dataset.split(name), memory
    return "all splits", dataset, None


def _own_splits(folder: Path, dataset: Dataset) -> Splits | None:
    """The splits of the run in `folder`, if this is the data it was trained on."""
    try:
        report = json.loads((folder / "results.json").read_text())
        found = split(dataset, seed=report["settings"]["seed"], say=lambda sentence: None)
        return found if fingerprint(found) == report["data"] else None
    except (OSError, ValueError, KeyError, TypeError):  # no run of ours, or data that nothing can be held out of
        return None
