"""`cenote sweep`: random search; the best trial on validation is saved and tested once."""

from __future__ import annotations

import csv
import dataclasses
import json
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Dataset
from ..data.files import write_atomically
from ..data.splits import Splits, split
from ..models import load, save_model
from ..options import suggest
from ..predict.distributed import processes
from ..predict.feature_cache import FeatureCache
from .checkpoint import NAME as CHECKPOINT
from .checkpoint import refuse_changes
from .config import RunConfig
from .configure import with_values
from .engine import Diverged, Stopped
from .fit import evaluate_on_test, fit, identity
from .log import muted
from .recipes import Recipe
from .reports import SweepReport, from_json, write_report
from .trials import SearchRange, Trials, searchable

logger = logging.getLogger(__name__)
# Körschens et al., appendix.
RANGES = {
    "lr": SearchRange(1e-5, 1.0, True),
    "weight_decay": SearchRange(1e-7, 1e-1, True),
    "cutout": SearchRange(0.0, 0.5),
}
TRIALS = 30
WEIGHTS = ("model.safetensors", "config.json")
NOTES = ("accuracy", "epoch", "seconds", "why")  # of a trial, in the table
STATES = {"COMPLETE": "done", "FAIL": "failed", "RUNNING": "in work"}


def search_space(
    ranges: Iterable[str] = (), recipe: Recipe | None = None, freeze: bool = False
) -> dict[str, SearchRange]:
    """Return the given ranges (`lr=1e-4..1e-1:log`), or the recipe's, or the paper's."""
    space = dict(map(parse_range, ranges))
    if space:
        return space
    if recipe is not None and recipe.search:
        names = [name for name in recipe.search if name in searchable()]
        return {name: _range_of_recipe(recipe, name) for name in names}
    return {key: value for key, value in RANGES.items() if not (freeze and key == "cutout")}


def parse_range(text: str) -> tuple[str, SearchRange]:
    name, equals, value = text.partition("=")
    ends, _, scale = value.partition(":")
    low, dots, high = ends.partition("..")
    if not equals or not dots or scale not in ("", "log"):
        raise ValueError(
            "a range is KEY=LOW..HIGH or KEY=LOW..HIGH:log, for example lr=1e-5..1:log; "
            f"got '{text}'"
        )
    name = name.strip().replace("-", "_")
    if name == "seed":
        raise ValueError(f"{text}: trials are compared on one validation split: keep one seed")
    if name not in searchable():
        hint = suggest(name, searchable()) or f": {', '.join(searchable())}"
        raise ValueError(f"'{name}' cannot be searched for{hint}")
    try:
        return name, SearchRange(float(low), float(high), scale == "log").check(name)
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from error


def _range_of_recipe(recipe: Recipe, name: str) -> SearchRange:
    value = recipe.search[name]
    try:
        low, high = value["range"]
        return SearchRange(float(low), float(high), bool(value.get("log", False))).check(name)
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(
            f"{recipe.name}: search.{name} must hold range: [low, high] and perhaps log: true"
        ) from error


def refuse_fixed(space: dict[str, SearchRange], given: Iterable[str]) -> None:
    """Raise if an option with a given value would be drawn as well."""
    for name in given:
        if name in space:
            low, high, _ = space[name]
            raise ValueError(
                f"{name} has a value, and is drawn from {low:g}..{high:g} as well: leave out the "
                "value, or say by --search what else is drawn"
            )


def sweep(
    data: Dataset,
    folder: Path,
    config: RunConfig,
    space: dict[str, SearchRange],
    trials: int = TRIALS,
    cache: FeatureCache | None = None,
) -> SweepReport | None:
    """Train `trials` times, or the missing ones in `folder`; then test the best on validation.

    `train.select` is the validation metric; the test split is hidden from all trials. None is
    returned while other processes train trials: the last one to end tests the best.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError(
            "a sweep shares its trials, not their batches: start it several times on one folder"
        )
    if trials < 1:
        raise ValueError(f"trials must be at least 1, got {trials}")
    with_values(config, {name: ends.low for name, ends in space.items()})  # it may not be possible
    splits = split(data, seed=config.train.seed)
    if splits.test is not None:
        data = data.select(~np.isin(data.rows, splits.test.rows))
    study = Trials(folder, space, config.train.seed)
    _check_same_search(study, config, splits)
    while True:
        with study.take(trials) as trial:
            if trial is None:
                break
            number, values = trial
            drawn = ", ".join(f"{key} {value:.3g}" for key, value in values.items())
            logger.info("trial %d of %d: %s", number + 1, trials, drawn)
            _run(study, number, with_values(config, values), data, cache)
        with study.locked():
            _tidy(study)
    return _finish(study, splits, config)


def _run(
    study: Trials, number: int, config: RunConfig, data: Dataset, cache: FeatureCache | None
) -> None:
    folder, started = study.folder_of(number), time.monotonic()
    try:
        with muted():
            report = fit(data, folder, config, cache, (folder / CHECKPOINT).exists())
    except Diverged as failure:
        study.finish(number, None, why=str(failure).split(", with ")[0])
        logger.info("  failed: %s", failure)
        return
    except Stopped as stop:
        same = f"the same command: -o {study.folder}"
        raise Stopped(str(stop).replace(f"--resume -o {folder}", same)) from stop
    metric, seconds = config.train.select, time.monotonic() - started
    value = round(report.val[metric], 6)  # rounding errors must not decide between ties
    accuracy = round(report.val["accuracy"], 3)
    study.finish(number, value, epoch=report.epoch, seconds=round(seconds, 1), accuracy=accuracy)
    best = study.best()
    logger.info(
        "  %s %.2f on val, %.0f s; best so far %.2f, of trial %d",
        *(metric, value, seconds, best.value, best.number + 1),
    )


def _check_same_search(study: Trials, config: RunConfig, splits: Splits) -> None:
    """Raise if the folder has trials of another search: they could not be compared."""
    settings = {**dataclasses.asdict(config.train), **identity(config, splits)}
    now = {key: value for key, value in settings.items() if key not in study.space}
    now["search"] = {name: list(ends) for name, ends in study.space.items()}
    now = json.loads(json.dumps(now))
    with study.locked():
        before = study.study.user_attrs.get("asked")
        if before is None:
            study.study.set_user_attr("asked", now)
        else:
            refuse_changes(before, now)


def _tidy(study: Trials) -> None:
    """Write the table, and delete the weights of all finished trials but the best one's."""
    best = study.best()
    for trial in study.all():
        if trial.state == study.states.RUNNING:
            continue
        obsolete = [CHECKPOINT]
        if best is None or trial.number != best.number:
            obsolete += WEIGHTS
        for name in obsolete:
            (study.folder_of(trial.number) / name).unlink(missing_ok=True)
    with (
        write_atomically(study.folder / "trials.csv") as temporary,
        open(temporary, "w", newline="") as file,
    ):
        csv.writer(file).writerows(table(study))


def table(study: Trials) -> list[list[str]]:
    """Return a row for each trial, after a row of names."""
    rows = [["trial", "state", "value", *study.space, *NOTES]]
    for trial in study.all():
        value = "" if trial.value is None else f"{trial.value:.3f}"
        drawn = [f"{trial.params[key]:.6g}" if key in trial.params else "" for key in study.space]
        notes = [str(trial.user_attrs.get(name, "")) for name in NOTES]
        state = STATES.get(trial.state.name, trial.state.name)
        rows.append([str(trial.number + 1), state, value, *drawn, *notes])
    return rows


def _finish(study: Trials, splits: Splits, config: RunConfig) -> SweepReport | None:
    """Save the best trial's model in FOLDER/best, and test it if that is not done yet."""
    out = study.folder / "best"
    with study.locked():
        _tidy(study)
        states = [row[1] for row in table(study)[1:]]
        counts = {state: states.count(state) for state in STATES.values()}
        if counts["in work"]:
            running = counts["in work"]
            logger.info("%d trials are in work elsewhere: the last to end tests the best", running)
            return None
        best = study.best()
        if best is None:
            why = study.all()[0].user_attrs.get("why")
            raise Stopped(f"all {counts['failed']} trials failed: {why}; search lower rates")
        content = _read(out)
        if content.get("trial") != best.number + 1:
            trained = study.folder_of(best.number)
            content = _read(trained)
            content |= {"trial": best.number + 1, "drawn": best.params, "value": best.value}
            model = load(trained)
            if splits.test is not None:
                with processes() as device:
                    scores = evaluate_on_test(model.to(device), splits, config.train, device)
                    content["test"] = scores
            save_model(model.cpu(), out)
        report = from_json(SweepReport, {**content, "trials": counts})
        write_report(out, report)
    return report


def _read(folder: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads((folder / "results.json").read_text())
    except (OSError, ValueError):
        return {}
    return content
