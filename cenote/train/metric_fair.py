"""The fair protocol (Musgrave et al.): four models, each without a quarter of the classes, which chooses its epoch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.class_splits import ClassSplits, class_names, fold_splits
from ..evaluate.validators import COUNTS, SearchVectors, concatenate_vectors
from ..metrics.retrieval import KS, KS_OF
from ..models import load as load_model
from ..models import save_model
from ..predict.distributed import rank
from ..predict.feature_cache import FeatureCache
from .checkpoint import can_resume
from .log import write_results
from .metric_choices import MetricChoices
from .metric_run import Run

SAME = (*COUNTS, "images")  # of every model alike


def learn_four(
    parts: ClassSplits,
    folder: Path,
    choices: MetricChoices,
    cache: FeatureCache | None,
    resume: bool,
    say: Callable[[str], None],
    device: torch.device,
) -> dict[str, Any]:
    """Report the mean of the four, and their vectors in a row.

    Each of them is trained `repeats` times, and every collection of four is judged: 81 if that is three times (G
    1.1.4). Then the report has their mean and, under "deviation", how far they scatter.
    """
    folds, repeats = fold_splits(parts), choices.options.repeats
    places, reports, vectors = list[str](), list[dict[str, Any]](), list[list[SearchVectors]]()
    for number, splits in enumerate(folds, 1):
        vectors.append([])
        for again in range(repeats):
            places.append(f"fold-{number}" + (f"-{again + 1}" if again else ""))
            say(
                f"fold {number} of {len(folds)}"
                + (f", {again + 1} of {repeats} times" if repeats > 1 else "")
            )
            inside = folder / places[-1]
            goes_on = resume and inside.is_dir() and can_resume(inside)
            seed = choices.settings.seed + again * len(folds) + number - 1
            settings = dataclasses.replace(choices.settings, seed=seed)
            one = Run(
                dataclasses.replace(choices, settings=settings), splits, inside, device, say, folder
            )
            report, found = one.train(cache, goes_on)
            reports.append(report)
            vectors[-1].append(found)
    ks, lone = KS_OF.get(parts.test.name, KS), choices.options.without_match
    each = np.arange(len(reports)).reshape(len(folds), repeats)
    collections = list(product(*each))
    alone = [_mean([reports[place]["test"] for place in some]) for some in collections]
    in_a_row = [concatenate_vectors(some).scores(ks, lone) for some in product(*vectors)]
    together: dict[str, Any] = {
        "task": "metric",
        "protocol": "fair",
        "backbone": choices.backbone,
        "pool": reports[0]["pool"],
        "test": _mean(alone),
        "concatenated": _mean(in_a_row),
        "folds": reports,
        "classes": {"train": class_names(parts.train), "val": [], "test": class_names(parts.test)},
        "settings": reports[0]["settings"],
    }
    if repeats > 1:
        together["collections"] = len(collections)
        together["deviation"] = {"test": _deviation(alone), "concatenated": _deviation(in_a_row)}
    if rank() == 0:  # the one that chose best stands for all where one model is asked for
        best = max(range(len(reports)), key=lambda k: reports[k]["val"][choices.options.score])
        save_model(load_model(folder / places[best]), folder)
        write_results(folder, together | {"fold": places[best]})
    return together


def _mean(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {
        name: value if name in SAME else float(np.mean([one[name] for one in found]))
        for name, value in found[0].items()
    }


def _deviation(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {
        name: float(np.std([one[name] for one in found])) for name in found[0] if name not in SAME
    }
