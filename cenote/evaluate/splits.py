"""Choose the images that a saved model is evaluated on."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..data import Dataset
from ..data.splits import TRAIN, VAL, Splits, class_names, class_splits, split

log = logging.getLogger(__name__)


class EvaluationSplits(NamedTuple):
    """The images to evaluate on, and disjoint training and validation images if there are any."""

    name: str
    test: Dataset
    train: Dataset | None
    val: Dataset | None


def evaluation_splits(folder: Path, dataset: Dataset, name: str | None = None) -> EvaluationSplits:
    """Choose split `name`; by default what the run held out, or "test", or all.

    Of a backbone, which has no folder, the default is what a run would hold out.
    """
    run_splits = splits_of_run(folder, dataset) if folder.exists() else split(dataset)
    if name is None and run_splits is not None:
        if run_splits.test is None:
            return EvaluationSplits("val", run_splits.val, run_splits.train, None)
        return EvaluationSplits("test", run_splits.test, run_splits.train, run_splits.val)
    if name is None and "test" in dataset.splits:
        name = "test"
    if name is None:
        return EvaluationSplits("all splits", dataset, None, None)
    train, val = (
        next((dataset.split(n) for n in names if n in dataset.splits and n != name), None)
        for names in (TRAIN, VAL)
    )
    if run_splits is not None and name not in (*TRAIN, *VAL):
        val = run_splits.val
    return EvaluationSplits(name, dataset.split(name), train, val)


def splits_of_run(folder: Path, dataset: Dataset) -> Splits | None:
    """Return the splits of the run in `folder` if it was trained on this data set."""
    report = read_run(folder)
    with suppress(ValueError, KeyError, TypeError):  # not a training run, or nothing is held out
        splits = split(dataset, seed=report["settings"]["seed"], quiet=True)
        if splits.fingerprint() == report["data"]:
            return splits
    return None


def held_out_classes(folder: Path, dataset: Dataset) -> Dataset | None:
    """Return the images of the classes that a metric learning run on this data set held out."""
    report = read_run(folder)
    with suppress(ValueError, KeyError, TypeError):
        if report["task"] == "metric":
            test = class_splits(dataset).test
            if test is not None and class_names(test) == report["classes"]["test"]:
                return test
    return None


def log_fold(folder: Path) -> None:
    """Log which of its models represents a run of the fair protocol, which trains four or more."""
    report = read_run(folder)
    if report.get("protocol") == "fair" and report.get("fold") is not None:
        log.info(
            "%s has several models: the one with the best validation score, %s, is evaluated; "
            "results.json has their mean",
            folder,
            report["fold"],
        )


def read_run(folder: Path) -> dict[str, Any]:
    """Return the results.json of a run, {} if there is none; RUN/epoch-20 has that of RUN."""
    if folder.name.startswith("epoch-"):
        folder = folder.parent
    with suppress(OSError, ValueError):
        report = json.loads((folder / "results.json").read_text())
        if isinstance(report, dict):
            return report
    return {}
