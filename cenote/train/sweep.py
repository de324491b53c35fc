"""`cenote sweep`: random search; the best trial on validation is saved and tested once.

The trials of a folder are shared by any number of processes, and a kill loses none: what a trial
draws depends on the seed and its number alone, and FOLDER/trials/NNNN/trial.json says how it ended.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, get_type_hints

import numpy as np
from filelock import BaseFileLock, FileLock

from ..data import Dataset
from ..data.csv_files import write_csv
from ..data.files import try_lock, write_text
from ..data.samplers import mix_seed
from ..data.splits import Splits, split
from ..models import load, save_model
from ..options import check_number, suggest
from ..predict.distributed import processes
from ..predict.feature_cache import FeatureCache
from .checkpoint import NAME as CHECKPOINT
from .checkpoint import refuse_changes
from .config import RESUMABLE_CHANGES, OptimizationConfig, RunConfig
from .configure import with_values
from .engine import Diverged
from .fit import evaluate_on_test, fit, identity
from .log import Stopped, muted
from .recipes import Recipe
from .reports import Scores, SweepReport

logger = logging.getLogger(__name__)
# The seed decides the validation split: trials with several would be compared on different images.
NOT_SEARCHED = (*RESUMABLE_CHANGES, "most_bad", "seed")
TRIALS = 30
WEIGHTS = ("model.safetensors", "config.json")


class SearchRange(NamedTuple):
    """Where a number is drawn from."""

    low: float
    high: float
    log: bool = False

    def check(self, name: str) -> SearchRange:
        if not self.low < self.high:
            raise ValueError(f"the range of {name} must grow, got {self.low:g}..{self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range of {name} starts above 0, got {self.low:g}")
        return self


# Körschens et al., appendix.
RANGES = {
    "lr": SearchRange(1e-5, 1.0, True),
    "weight_decay": SearchRange(1e-7, 1e-1, True),
    "cutout": SearchRange(0.0, 0.5),
}


def searchable() -> dict[str, type]:
    """Return the numbers that a search can draw, with their types."""
    hints = get_type_hints(OptimizationConfig)
    numbers = {name: kind for name, kind in hints.items() if kind in (int, float)}
    return {"cutout": float, **{k: v for k, v in numbers.items() if k not in NOT_SEARCHED}}


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
    if name not in searchable():
        hint = suggest(name, searchable()) or f": {', '.join(searchable())}"
        raise ValueError(f"{text}: '{name}' cannot be searched for{hint}")
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


def draw(space: dict[str, SearchRange], seed: int, number: int) -> Scores:
    """Draw the values of a trial, uniform in the range or in its logarithm."""
    rng = np.random.RandomState(mix_seed(seed, number) % 2**32)
    kinds, values = searchable(), Scores()
    for name, (low, high, log) in space.items():
        whole = kinds[name] is int
        if whole:
            low, high = round(low) - 0.5, round(high) + 0.5
        if log:
            value = math.exp(rng.uniform(math.log(low), math.log(high)))
        else:
            value = rng.uniform(low, high)
        value = min(max(value, low), high)  # the logarithm is rounded
        values[name] = round(value) if whole else value
    return values


@dataclass(frozen=True)
class Trial:
    """One training: what was drawn, and how it ended; `value` is its score on validation."""

    number: int
    drawn: Scores
    state: str = "in work"  # or "done", "failed"
    value: float | None = None
    accuracy: float | None = None
    epoch: int | None = None
    seconds: float | None = None
    why: str | None = None

    def row(self) -> list[object]:
        """Return the cells of the table; None is an empty cell."""
        value = None
        if self.value is not None:
            value = round(self.value, 3)
        drawn = [float(f"{value:.6g}") for value in self.drawn.values()]
        notes = [self.accuracy, self.epoch, self.seconds, self.why]
        return [self.number + 1, self.state, value, *drawn, *notes]


class Search:
    """The trials in a folder.

    A process holds the lock of the trial that it trains, which the operating system releases when
    the process ends: a trial that has not ended and is not locked was interrupted, and is resumed.
    """

    def __init__(self, folder: Path, space: dict[str, SearchRange], seed: int) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError(
                "processes share the trials of a folder, not the batches of a trial: start the "
                "command several times with the same folder instead of using torchrun"
            )
        self.folder, self.space, self.seed = folder, space, seed
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = FileLock(folder / ".lock")  # for what is written in `folder` itself

    def folder_of(self, number: int) -> Path:
        return self.folder / "trials" / f"{number:04d}"

    def take(self, trials: int) -> tuple[Trial, BaseFileLock] | None:
        """Return the first of `trials` that is neither finished nor in work, with its lock held."""
        for number in range(trials):
            lock = try_lock(self.folder_of(number) / ".trial.lock")
            if lock is None:
                continue
            trial = self.read(number)
            if trial.state == "in work":
                return trial, lock
            lock.release()
        return None

    def read(self, number: int) -> Trial:
        path = self.folder_of(number) / "trial.json"
        if not path.exists():
            return Trial(number, draw(self.space, self.seed, number))
        return Trial(**json.loads(path.read_text()))

    def finish(self, trial: Trial, **outcome: object) -> None:
        content = json.dumps({**asdict(trial), **outcome})
        write_text(self.folder_of(trial.number) / "trial.json", content)

    def trials(self) -> list[Trial]:
        """Return the trials that have begun."""
        return [self.read(int(path.name)) for path in sorted(self.folder.glob("trials/*"))]

    def best(self) -> Trial | None:
        """Return the trial with the highest value; ties keep the first."""
        done = [trial for trial in self.trials() if trial.value is not None]
        return max(done, key=lambda trial: trial.value or 0.0, default=None)

    def tidy(self) -> None:
        """Write the table, and delete the weights of all finished trials but the best one's."""
        best, trials = self.best(), self.trials()
        for trial in trials:
            obsolete: list[str] = []
            if trial.state != "in work":
                obsolete += [CHECKPOINT]
                if trial != best:
                    obsolete += WEIGHTS
            for name in obsolete:
                (self.folder_of(trial.number) / name).unlink(missing_ok=True)
        names: list[object] = ["trial", "state", "value", *self.space]
        names += ["accuracy", "epoch", "seconds", "why"]
        with write_csv(self.folder / "trials.csv") as table:
            table.write_all([names, *(trial.row() for trial in trials)])


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
    check_number("trials", trials, whole=True, least=1)
    with_values(config, {name: ends.low for name, ends in space.items()})  # it may not be possible
    splits = split(data, seed=config.train.seed)
    if splits.test is not None:
        data = data.select(~np.isin(data.rows, splits.test.rows))
    search = Search(folder, space, config.train.seed)
    _check_same_search(search, config, splits)
    while (next_trial := search.take(trials)) is not None:
        trial, lock = next_trial
        try:
            drawn = ", ".join(f"{key} {value:.3g}" for key, value in trial.drawn.items())
            logger.info("trial %d of %d: %s", trial.number + 1, trials, drawn)
            _run(search, trial, with_values(config, trial.drawn), data, cache)
        finally:
            lock.release()
        with search.lock:
            search.tidy()
    with search.lock:
        return _finish(search, splits, config)


def _run(
    search: Search, trial: Trial, config: RunConfig, data: Dataset, cache: FeatureCache | None
) -> None:
    folder, started = search.folder_of(trial.number), time.monotonic()
    try:
        with muted():
            resume = (folder / CHECKPOINT).exists()
            report = fit(data, folder, config, cache, resume, object_map=False)
    except Diverged as failure:
        search.finish(trial, state="failed", why=str(failure).split(", with ")[0])
        logger.info("  failed: %s", failure)
        return
    metric: str = config.train.select
    seconds = round(time.monotonic() - started, 1)
    accuracy: float | None = None
    if "accuracy" in report.val:
        accuracy = round(report.val["accuracy"], 3)
    elif metric == "accuracy":
        metric = "mAP"
    value = round(report.val[metric], 6)  # rounding errors must not decide between ties
    search.finish(
        trial, state="done", value=value, accuracy=accuracy, epoch=report.epoch, seconds=seconds
    )
    best = search.best() or trial
    logger.info(
        "  %s %.2f on val, %.0f s; best so far %.2f, of trial %d",
        *(metric, value, seconds, best.value, best.number + 1),
    )


def _check_same_search(search: Search, config: RunConfig, splits: Splits) -> None:
    """Raise if the folder has trials of another search: they could not be compared."""
    settings = {**asdict(config.train), **identity(config, splits)}
    now = {key: value for key, value in settings.items() if key not in search.space}
    now["search"] = search.space
    now = json.loads(json.dumps(now))
    path = search.folder / "search.json"
    with search.lock:
        if path.exists():
            refuse_changes(json.loads(path.read_text()), now)
        else:
            write_text(path, json.dumps(now))


def _finish(search: Search, splits: Splits, config: RunConfig) -> SweepReport | None:
    """Save the best trial's model in FOLDER/best, and test it if that is not done yet."""
    search.tidy()
    trials = search.trials()
    states = [trial.state for trial in trials]
    counts = {state: states.count(state) for state in ("done", "failed", "in work")}
    if running := counts["in work"]:
        logger.info("%d trials are in work elsewhere: the last to end tests the best", running)
        return None
    best = search.best()
    if best is None:
        raise Stopped(f"all {len(trials)} trials failed: {trials[0].why}; search lower rates")
    out, trained = search.folder / "best", search.folder_of(best.number)
    content = {}
    if (out / "results.json").exists():
        content = json.loads((out / "results.json").read_text())
    if content.get("trial") != best.number + 1:
        content = json.loads((trained / "results.json").read_text())
        content |= {"trial": best.number + 1, "drawn": best.drawn, "value": best.value}
        model = load(trained)
        if splits.test is not None:
            with processes() as device:
                test = evaluate_on_test(model.to(device), splits, config.train, device)
                content["test"] = test
        save_model(model.cpu(), out)
    report = SweepReport(**{**content, "trials": counts})
    report.write(out)
    return report
