"""Errors under ImageNet-C's corruptions: of ImageNet-C itself, or of any data set, corrupted on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ..data import Dataset
from ..data.corruptions import CORRUPTIONS, SEVERITIES, with_corruption
from ..data.corruptions.registry import find_corruption
from ..metrics.robustness import corruption_error
from ..models import PooledModel
from .classify import Progress
from .marks import Keep, Kept, accuracy, best_of_all, known_to, mark_all, model_numbers, readable

CLEAN = "clean"
OTHER_DATA = "mCE divides by AlexNet's errors on ImageNet: on other data it compares models, but not with papers"
OWN_FROST = "frost is drawn here, not photographed: neither its error nor mCE is one to hold against a published one"
QUICK = "mCE is the mean over all 15 corruptions and 5 severities: not all were asked for"


def corruption(
    model: PooledModel,
    dataset: Dataset,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    clean: Dataset | None = None,
    batch: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
    kept: Kept | None = None,
    keep: Keep | None = None,
) -> dict[str, Any]:
    """Accuracy in percent by corruption and severity, their mean, and mCE where all are there.

    Images are brought to the size that the model sees, then corrupted, then cropped; ImageNet-C was cropped first. Of
    ImageNet-C the corrupted files are read, all corruptions that are there by default; its `clean` images lie
    elsewhere.
    """
    published = is_imagenet_c(dataset)
    there = set(dataset.domains.names) if published else set(CORRUPTIONS)
    names = (
        [name for name in CORRUPTIONS if name in there]
        if corruptions is None
        else list(corruptions)
    )
    if not names or not severities:
        raise ValueError("at least one corruption and one severity")
    for name, severity in product(names, severities):
        find_corruption(name, severity)
    if model.head is None:
        raise ValueError("a model without a head tells no classes: no corruption protocol")
    options: dict[str, Any] = {
        "batch": batch,
        "workers": workers,
        "progress": progress,
        "kept": kept,
        "keep": keep,
    }
    numbers = model_numbers(model, dataset)
    known, left_out = known_to(dataset, numbers)
    answer = best_of_all(numbers, model.head.classes)
    parts: dict[str, Callable[[], Dataset]] = {}
    for name, severity in product(names, severities):
        own = partial(_files, known) if published else partial(as_judged, known, seed, model)
        parts[f"{name}/{severity}"] = partial(own, name, severity)
    if not published:
        if progress:
            progress((len(dataset) - len(known)) * (len(parts) + 1))
        marks = mark_all(model, {CLEAN: lambda: known, **parts}, answer, **options)
        judged = readable(marks)
        if not judged.any():
            raise ValueError(f"no image of {dataset.name} could be read: {marks[CLEAN].bad[0]}")
    else:
        marks, judged = mark_all(model, parts, answer, **options), None
        if clean is not None:
            others = model_numbers(model, clean)
            known, _ = known_to(clean, others)
            marks |= mark_all(
                model, {CLEAN: lambda: known}, best_of_all(others, model.head.classes), **options
            )
    found = {
        name: {str(k): accuracy(marks[f"{name}/{k}"], judged) for k in severities} for name in names
    }
    return {
        **_scores(found, accuracy(marks[CLEAN], judged) if CLEAN in marks else None, published),
        # Of ImageNet-C, in one corruption at one severity; otherwise the images that were read in every pass.
        "images": max(len(m.marks) - len(m.bad) for m in marks.values())
        if judged is None
        else int(judged.sum()),
        "left_out": left_out,
        "unreadable": sorted({sentence for one in marks.values() for sentence in one.bad}),
        "seed": None if published else seed,
    }


def _scores(
    found: dict[str, dict[str, float]], clean: float | None, published: bool
) -> dict[str, Any]:
    """The means, and mCE with what must be said of it."""
    means = {name: float(np.mean(list(by.values()))) for name, by in found.items()}
    report: dict[str, Any] = {
        "clean": clean,
        "accuracy": found,
        "by_corruption": means,
        "mean_accuracy": float(np.mean(list(means.values()))),
        "mce": None,
        "relative_mce": None,
    }
    whole = set(found) == set(CORRUPTIONS) and all(
        set(by) == set(map(str, SEVERITIES)) for by in found.values()
    )
    if whole:
        errors = {name: [1 - share / 100 for share in by.values()] for name, by in found.items()}
        score = corruption_error(errors, None if clean is None else 1 - clean / 100)
        report["mce"] = 100 * score.mce
        report["relative_mce"] = None if score.relative_mce is None else 100 * score.relative_mce
    notes = [] if whole else [QUICK]
    if not published:
        notes += [OTHER_DATA] * whole + [OWN_FROST] * ("frost" in found)
    return {**report, "notes": notes}


def as_judged(dataset: Dataset, seed: int, model: PooledModel, name: str, severity: int) -> Dataset:
    """Corrupted at the size that the model sees."""
    own = model.backbone.preprocessing
    short = math.floor(own.size / own.crop)
    return with_corruption(
        dataset, name, severity, seed, short=short, interpolation=own.interpolation
    )


def _files(dataset: Dataset, name: str, severity: int) -> Dataset:
    domains, levels = dataset.domains, dataset.attribute("severity")
    chosen = np.zeros(len(dataset), bool)
    if name in domains.names and str(severity) in levels.names:
        chosen = (domains.codes == domains.names.index(name)) & (
            levels.codes == levels.names.index(str(severity))
        )
    if not chosen.any():
        raise ValueError(
            f"{dataset.name} has no images of {name} at severity {severity} in {dataset.root}"
        )
    return dataset.select(chosen)


def is_imagenet_c(dataset: Dataset) -> bool:
    """Whether its domains are corruptions, with their severity."""
    return "severity" in dataset.table.attributes and bool(
        set(dataset.domains.names) & set(CORRUPTIONS)
    )
