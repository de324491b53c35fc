"""Train every combination of some values several times: grids, screening designs, repeated runs.

As in a sweep, any number of processes share the trials of a folder, and a kill loses none.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path

import numpy as np

from ..data import Dataset
from ..data.csv_files import write_csv
from ..data.files import write_text
from ..data.splits import Splits, split
from ..options import check_number
from .checkpoint import NAME as CHECKPOINT
from .checkpoint import refuse_changes
from .config import MetricConfig, OptimizationConfig, RunConfig
from .configure import validate
from .engine import Diverged
from .fit import fit, identity
from .log import muted
from .metric_run import train_metric
from .recipes import update
from .reports import Scores
from .sweep import WEIGHTS, Search, Trial

logger = logging.getLogger(__name__)
COUNTS = ("images", "queries", "without_match")


@dataclass(frozen=True)
class Design:
    """The combinations to train, each `runs` times with other seeds."""

    cells: tuple[Scores, ...]
    runs: int = 1

    @classmethod
    def parse(cls, texts: Iterable[str], runs: int = 1, screen: bool = False) -> Design:
        """Read KEY=VALUE,VALUE... of each factor.

        All combinations, or with `screen` half of those of two values each: the last factor is
        high where an even number of the others is low (defining relation I = AB...K).
        """
        check_number("--runs", runs, whole=True, least=1)
        factors = [_parse_factor(text) for text in texts]
        grid = dict(factors)
        if len(grid) < len(factors):
            raise ValueError(
                "--grid accepts each key once: list all of its values, as in eps=0.5,5"
            )
        if "seed" in grid:
            raise ValueError(
                "--grid does not accept 'seed': use --runs to train with several seeds"
            )
        if screen and (len(grid) < 3 or any(len(values) != 2 for values in grid.values())):
            raise ValueError("--screen needs at least three keys of --grid with two values each")
        cells = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        if screen:
            highs = {name: values[1] for name, values in grid.items()}
            cells = [c for c in cells if sum(c[n] != highs[n] for n in grid) % 2 == 0]
        return cls(tuple(cells), runs)


def _parse_factor(text: str) -> tuple[str, list[float]]:
    name, _, values = text.partition("=")
    try:
        return name.strip().replace("-", "_"), [_number(value) for value in values.split(",")]
    except ValueError as error:
        message = f"--grid takes KEY=NUMBER,NUMBER..., such as eps=0.5,5; got '{text}'"
        raise ValueError(message) from error


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() and "." not in text else value


def with_cell(config: RunConfig, values: Scores, run: int) -> RunConfig:
    """Return the configuration of a trial: settings, options of metric learning, or of the pool."""
    train: Scores = {"seed": config.train.seed + run}
    options, pool = Scores(), Scores()
    names = {item.name for item in fields(OptimizationConfig)}
    method = {item.name for item in fields(MetricConfig)} if config.task == "metric" else set()
    for name, value in values.items():
        if name in names:
            train[name] = value
        elif name in method:
            options[name] = value
        else:
            pool[name] = value
    changes = {"train": train, "options": options, "model": {"pool_options": pool}}
    config = update(config, changes)
    validate(config)
    return config


class Grid(Search):
    """The trials of a design, the runs of a cell one after the other."""

    def __init__(self, folder: Path, design: Design) -> None:
        super().__init__(folder, {}, 0)
        self.design = design

    def read(self, number: int) -> Trial:
        path = self.folder_of(number) / "trial.json"
        if path.exists():
            return Trial(**json.loads(path.read_text()))
        return Trial(number, self.design.cells[number // self.design.runs])

    def scores(self, number: int) -> Scores:
        """Return the test scores of a finished trial and its score on validation."""
        content = json.loads((self.folder_of(number) / "results.json").read_text())
        scores = {k: v for k, v in (content.get("test") or {}).items() if k not in COUNTS}
        val = {f"val {k}": v for k, v in (content.get("val") or {}).items() if k not in COUNTS}
        return {k: v for k, v in (val | scores).items() if isinstance(v, int | float)}


@dataclass(frozen=True)
class CellReport:
    """Mean and standard deviation (of the sample) of the runs of a cell that did not fail."""

    values: Scores
    runs: int
    mean: Scores
    deviation: Scores


def run_grid(data: Dataset, folder: Path, config: RunConfig, design: Design) -> list[CellReport]:
    """Train all trials, or the missing ones in `folder`, and return a report for each cell."""
    for cell in design.cells:
        with_cell(config, cell, 0)  # raises before training
    grid, count = Grid(folder, design), len(design.cells) * design.runs
    _check_same_design(grid, config, data)
    while (next_trial := grid.take(count)) is not None:
        trial, lock = next_trial
        try:
            drawn = ", ".join(f"{key} {value:g}" for key, value in trial.drawn.items())
            logger.info("trial %d of %d: %s", trial.number + 1, count, drawn or "all as given")
            _train(grid, trial, data, config)
        finally:
            lock.release()
    reports = [_cell_report(grid, index) for index in range(len(design.cells))]
    _write_table(folder / "grid.csv", reports)
    return reports


def _train(grid: Grid, trial: Trial, data: Dataset, config: RunConfig) -> None:
    folder = grid.folder_of(trial.number)
    cell = with_cell(config, trial.drawn, trial.number % grid.design.runs)
    resume = (folder / CHECKPOINT).exists() or (folder / "fold-1" / CHECKPOINT).exists()
    try:
        with muted():
            if config.task == "metric":
                train_metric(data, folder, cell, resume=resume)
            else:  # one validation split for all seeds
                splits = split(data, seed=config.train.seed)
                fit(splits, folder, cell, resume=resume, object_map=False)
    except Diverged as failure:
        grid.finish(trial, state="failed", why=str(failure).split(", with ")[0])
        logger.info("  failed: %s", failure)
        return
    grid.finish(trial, state="done")
    for name in (CHECKPOINT, *WEIGHTS):
        for path in folder.rglob(name):
            path.unlink()


def _check_same_design(grid: Grid, config: RunConfig, data: Dataset) -> None:
    """Raise if the folder has trials of another design, configuration or data set."""
    images = Splits(data, data.select([]), None)  # of all splits: the test scores are kept as well
    now = {**asdict(config.train), **identity(config, images), **asdict(grid.design)}
    now = json.loads(json.dumps(now, default=str))
    path = grid.folder / "grid.json"
    with grid.lock:
        if path.exists():
            refuse_changes(json.loads(path.read_text()), now)
        else:
            write_text(path, json.dumps(now))


def _cell_report(grid: Grid, index: int) -> CellReport:
    runs = grid.design.runs
    numbers = range(index * runs, (index + 1) * runs)
    scores = [grid.scores(number) for number in numbers if grid.read(number).state == "done"]
    names = list(scores[0]) if scores else []
    columns = {name: np.array([row[name] for row in scores]) for name in names}
    deviation = {name: float(x.std(ddof=1)) for name, x in columns.items() if len(x) > 1}
    mean = {name: float(x.mean()) for name, x in columns.items()}
    return CellReport(grid.design.cells[index], len(scores), mean, deviation)


def _write_table(path: Path, reports: list[CellReport]) -> None:
    names = list(next((report.mean for report in reports if report.mean), {}))
    head = [*reports[0].values, "runs", *(f"{n}{end}" for n in names for end in ("", " ±"))]
    with write_csv(path) as table:
        table.write(head)
        for report in reports:
            pairs = ((report.mean.get(n), report.deviation.get(n)) for n in names)
            cells = ["" if x is None else round(x, 4) for pair in pairs for x in pair]
            table.write([*report.values.values(), report.runs, *cells])


def selection_metric(config: RunConfig, scores: Scores) -> str:
    """Return the metric that selects the epoch: its score on validation, or on test without one."""
    metric = config.train.select
    if config.task == "metric":
        metric = config.options.score
    names = (f"val {metric}", metric, "val mAP")  # mAP replaces the accuracy of several classes
    return next(name for name in names if name in scores)


def main_effects(reports: list[CellReport], score: str) -> Scores:
    """Return the mean score with the higher value of each factor minus that with the lower one."""
    effects: Scores = {}
    for name in reports[0].values:
        high = max(report.values[name] for report in reports)
        means = [
            np.mean([r.mean[score] for r in reports if (r.values[name] == high) == side])
            for side in (True, False)
        ]
        effects[name] = float(means[0] - means[1])
    return effects
