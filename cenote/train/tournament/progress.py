"""Progress of a tournament, read from its folder while it runs. Imports neither torch nor numpy."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STOPPED_AFTER = 300.0  # seconds without a change, after which the process may have been killed
DEFAULT_SEEDS = 3  # if the plan has none


@dataclass
class CandidateProgress:
    """Accuracies in percent, one per seed; the last of `val` may be of a training that runs."""

    name: str
    group: str
    accuracy: list[float]
    val: list[float]
    epoch: int  # of the training that runs


@dataclass
class TournamentProgress:
    """`done` and `total` are epochs, summed over candidates; `report` is that of results.json."""

    name: str
    running: bool
    stage: str
    done: int
    total: int
    report: dict[str, Any] | None  # once the tournament is finished
    contenders: list[CandidateProgress]


@dataclass
class Round:
    """Training of all candidates: the selection of learning rates, or one seed."""

    is_seed: bool
    results: dict[str, dict[str, Any]] = field(default_factory=dict)  # of finished passes
    scores: dict[str, float] = field(default_factory=dict)  # of the running pass, on validation
    epoch: int = 0  # of the running pass
    done: int = 0  # epochs of all passes, summed over candidates
    running: bool = False


def read_progress(folder: Path) -> TournamentProgress:
    """Read how far a tournament is."""
    plan = _read_json(folder / "plan.json")
    if "contenders" not in plan:
        raise ValueError(f"{folder} has no readable tournament")
    seeds = [path for path in folder.glob("seed-*") if path.name.partition("-")[2].isdigit()]
    names, groups = [str(name) for name in plan["contenders"]], dict(plan.get("groups", {}))
    paths = [folder / "rates", *sorted(seeds, key=_number)]
    rounds = [_read_round(path, names) for path in paths]
    report = _read_json(folder / "results.json")
    # A report with an unfinished round is from before more seeds were requested.
    finished = "standings" in report and not any(each.running for each in rounds)
    if finished:
        groups = {row["name"]: row["group"] for row in report["standings"]}
        names = list(groups)
    epochs, selection = _epochs(plan)
    requested = report["seeds"] if finished else plan.get("seeds", DEFAULT_SEEDS)
    total = len(plan["contenders"]) * (selection + epochs * max(len(seeds), requested))
    seconds = time.time() - _last_change(folder)
    return TournamentProgress(
        name=folder.resolve().name,
        running=not finished and seconds < STOPPED_AFTER,
        stage="finished" if finished else _stage(plan, rounds, seconds),
        done=total if finished else min(total, sum(each.done for each in rounds)),
        total=total,
        report=report if finished else None,
        contenders=[_candidate(name, groups.get(name, plan["kind"]), rounds) for name in names],
    )


def _read_round(folder: Path, names: Sequence[str]) -> Round:
    progress = Round(folder.name != "rates")
    for path in sorted(folder.glob("heat-*"), key=_number):
        results = _read_json(path / "results.json")
        epoch, scores = _last_epoch(path / "metrics.jsonl")
        if (path / "fit").is_dir():  # one network, trained end to end
            epoch, scores = _last_epoch(path / "fit" / "metrics.jsonl")
            scores = {names[_number(path) - 1]: score for score in scores.values()}
        progress.done += epoch * len(scores)
        if "entries" in results:
            progress.results |= results["entries"]
        else:
            progress.running, progress.epoch = True, epoch
            progress.scores |= scores
    return progress


def _candidate(name: str, group: str, rounds: list[Round]) -> CandidateProgress:
    seeds = [each.results.get(name, {}) for each in rounds if each.is_seed]
    finished = [result for result in seeds if result.get("failed", "") is None]
    val = [float(result["val"]) for result in finished]
    accuracy = [float(r["accuracy"]) for r in finished if r.get("accuracy") is not None]
    running = next((each for each in reversed(rounds) if name in each.scores), None)
    if running is None:
        return CandidateProgress(name, group, accuracy, val, 0)
    return CandidateProgress(name, group, accuracy, [*val, running.scores[name]], running.epoch)


def _stage(plan: Mapping[str, Any], rounds: list[Round], seconds: float) -> str:
    if seconds >= STOPPED_AFTER:  # or it is a long epoch
        return (
            f"no change for {seconds // 60:.0f} minutes: if it was stopped, run the same command "
            "with --resume"
        )
    last, (epochs, selection) = rounds[-1], _epochs(plan)
    if last.is_seed:
        seed = sum(each.is_seed for each in rounds)
        if last.running:
            return f"seed {seed}, epoch {last.epoch} of {epochs}"
        return f"evaluating seed {seed}"
    if last.running or last.results:
        return f"selecting learning rates, epoch {last.epoch} of {selection}"
    return "reading the images"


def _epochs(plan: Mapping[str, Any]) -> tuple[int, int]:
    """Return the epochs of a seed, and of the selection of learning rates."""
    epochs = int(plan.get("settings.epochs", 1))
    if len(plan.get("rates", ())) < 2 and len(plan.get("pool_lr_factors", ())) < 2:
        return epochs, 0
    return epochs, selection_epochs(epochs)


def selection_epochs(epochs: int) -> int:
    """Return the epochs in which learning rates are selected."""
    return max(1, round(epochs / 3))


class RemainingTime:
    """Time that is left, from estimated seconds of the stages and the pace of finished ones."""

    def __init__(self, stages: Sequence[float]) -> None:
        self.stages, self.finished, self.started = list(stages), 0, time.monotonic()

    def of_next_stage(self) -> str:
        """Return the time that is left, at the beginning of a stage."""
        done, left = sum(self.stages[: self.finished]), sum(self.stages[self.finished :])
        pace = 1.0
        if done:  # stages of an earlier run take no time: never below the estimate
            pace = max(pace, (time.monotonic() - self.started) / done)
        self.finished += 1
        minutes, seconds = divmod(round(pace * left), 60)
        return f"about {minutes} min {seconds} s left"


def _last_change(folder: Path) -> float:
    newest = 0.0
    patterns = ("*/", "*/heat-*/*", "*/heat-*/fit/*")
    paths = [path for pattern in patterns for path in folder.glob(pattern)]
    for path in (folder, folder / "plan.json", *paths):
        with suppress(OSError):  # a temporary file that is gone
            newest = max(newest, path.stat().st_mtime)
    return newest


def _number(path: Path) -> int:
    """seed-12 -> 12."""
    return int(path.name.partition("-")[2] or 0)


def _last_epoch(path: Path) -> tuple[int, dict[str, float]]:
    """Return the last complete epoch, and the best score of each candidate; 0 if there is none."""
    lines = path.read_text().splitlines() if path.is_file() else []
    for line in reversed(lines):
        with suppress(ValueError, KeyError):  # the last line may still be written
            row = json.loads(line)
            scores: dict[str, float] = {}
            for name_and_lr, metrics in row["results"].items():
                name = name_and_lr.rpartition("@")[0]
                score = float(metrics.get("accuracy", metrics.get("score", 0.0)))
                scores[name] = max(scores.get(name, score), score)
            return int(row["epoch"]), scores
    return 0, {}


def _read_json(path: Path) -> dict[str, Any]:
    """Return an object, empty if the file is missing or damaged."""
    with suppress(OSError, ValueError):
        content = json.loads(path.read_text())
        if isinstance(content, dict):
            return content
    return {}
