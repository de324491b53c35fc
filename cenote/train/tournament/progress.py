"""Progress of a tournament, read from its folder while it runs. Imports neither torch nor numpy."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
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
    """`done` and `total` are epochs; `report` is results.json once the tournament is finished."""

    name: str
    running: bool
    stage: str
    done: int
    total: int
    report: dict[str, Any] | None
    contenders: list[CandidateProgress]


def read_progress(folder: Path, groups: Mapping[str, str] | None = None) -> TournamentProgress:
    """Read how far a tournament is. `groups` of the candidates are used until there is a report."""
    plan = _read_json(folder / "plan.json")
    if not isinstance(plan, dict) or "contenders" not in plan:
        raise ValueError(f"{folder} has no readable tournament")
    rounds = _read_rounds(folder)
    report = _read_json(folder / "results.json")
    # A report with an unfinished round is from before more seeds were requested.
    if not isinstance(report, dict) or "standings" not in report or any(r.open for r in rounds):
        report = None
    done, total = _count_epochs(plan, rounds, report)
    seconds = time.time() - _last_change(folder, rounds)
    names = [str(name) for name in plan["contenders"]]
    groups = dict(groups or {})
    if report is not None:
        groups = {row["name"]: row["group"] for row in report["standings"]}
        names, done = list(groups), total
    kind = str(plan["kind"])
    return TournamentProgress(
        name=folder.resolve().name,
        running=report is None and seconds < STOPPED_AFTER,
        stage="finished" if report else _stage(plan, rounds, seconds),
        done=done,
        total=total,
        report=report,
        contenders=[_candidate(name, groups.get(name, kind), rounds) for name in names],
    )


@dataclass
class Round:
    """Training of all candidates: the selection of learning rates, or one seed."""

    is_seed: bool
    folder: Path
    results: dict[str, dict[str, Any]] = field(default_factory=dict)  # of finished passes
    scores: dict[str, float] = field(default_factory=dict)  # of the running pass, on validation
    sizes: list[int] = field(default_factory=list)  # number of candidates of each pass
    epochs: int = 0  # of all passes
    epoch: int = 0  # of the running pass
    open: bool = False  # has a running pass

    def read_pass(self, folder: Path) -> None:
        results, lines = _read_json(folder / "results.json"), _read_lines(folder / "metrics.jsonl")
        last: dict[str, Any] = lines[-1] if lines else {"epoch": 0, "results": {}}
        self.epochs += int(last["epoch"])
        scores: dict[str, float] = {}
        for name_and_lr, metrics in last["results"].items():
            name, score = name_and_lr.rpartition("@")[0], metrics.get("score", 0.0)
            scores[name] = max(scores.get(name, -math.inf), float(metrics.get("accuracy", score)))
        self.sizes.append(len(scores))
        if isinstance(results, dict) and "entries" in results:
            self.results |= results["entries"]
        else:
            self.scores |= scores
            self.open, self.epoch = True, int(last["epoch"])

    def number_of_passes(self, candidates: int) -> int:
        """Estimate the number of passes, assuming that the next ones are as large."""
        largest = max(self.sizes, default=0)
        return max(len(self.sizes), math.ceil(candidates / largest) if largest else 1)


def _read_rounds(folder: Path) -> list[Round]:
    """Read the selection of learning rates, then the seeds in order."""
    seeds = [path for path in folder.glob("seed-*") if path.name.partition("-")[2].isdigit()]
    rounds = [Round(True, path) for path in sorted(seeds, key=_number)]
    if (folder / "rates").is_dir():
        rounds.insert(0, Round(False, folder / "rates"))
    for each in rounds:
        for path in sorted(each.folder.glob("heat-*"), key=_number):
            each.read_pass(path)
    return rounds


def _candidate(name: str, group: str, rounds: list[Round]) -> CandidateProgress:
    seeds = [each.results.get(name, {}) for each in rounds if each.is_seed]
    finished = [result for result in seeds if result.get("failed", "") is None]
    val = [float(result["val"]) for result in finished]
    accuracy = [float(r["accuracy"]) for r in finished if r.get("accuracy") is not None]
    running = next((each for each in reversed(rounds) if name in each.scores), None)
    if running is None:
        return CandidateProgress(name, group, accuracy, val, 0)
    return CandidateProgress(name, group, accuracy, [*val, running.scores[name]], running.epoch)


def _count_epochs(
    plan: Mapping[str, Any], rounds: list[Round], report: dict[str, Any] | None
) -> tuple[int, int]:
    """Return the epochs that are done, and all."""
    candidates, seeds = len(plan["contenders"]), sum(each.is_seed for each in rounds)
    seeds = max(seeds, int((report or plan).get("seeds", DEFAULT_SEEDS)))
    passes = [each.number_of_passes(candidates) for each in rounds]
    total = seeds * _epochs(plan) * max(passes, default=1)
    if len(plan.get("rates", ())) > 1:
        selection = [n for n, each in zip(passes, rounds, strict=True) if not each.is_seed]
        total += _selection_epochs(plan) * max(selection, default=1)
    return min(sum(each.epochs for each in rounds), total), total


def _stage(plan: Mapping[str, Any], rounds: list[Round], seconds: float) -> str:
    if seconds >= STOPPED_AFTER:  # or it is a long epoch
        return (
            f"no change for {seconds // 60:.0f} minutes: if it was stopped, run the same command "
            "with --resume"
        )
    if not rounds:
        return "reading the images"
    last = rounds[-1]
    if not last.is_seed:
        return f"selecting learning rates, epoch {last.epoch} of {_selection_epochs(plan)}"
    number = sum(each.is_seed for each in rounds)
    if last.open:
        return f"seed {number}, epoch {last.epoch} of {_epochs(plan)}"
    return f"evaluating seed {number}"


def _epochs(plan: Mapping[str, Any]) -> int:
    return int(plan.get("settings.epochs", 1))


def _selection_epochs(plan: Mapping[str, Any]) -> int:
    return max(1, round(_epochs(plan) / 3))


def _last_change(folder: Path, rounds: list[Round]) -> float:
    paths = [folder / "plan.json", folder, *(each.folder for each in rounds)]
    paths += [path for each in rounds for path in each.folder.glob("heat-*/*")]
    times = []
    for path in paths:
        try:
            times.append(path.stat().st_mtime)
        except OSError:  # a temporary file that is gone
            continue
    return max(times, default=0.0)


def _number(path: Path) -> int:
    """seed-12 -> 12."""
    return int(path.name.partition("-")[2] or 0)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Read the complete lines; the last one may still be written."""
    try:
        text = path.read_text()
    except OSError:
        return []
    lines = []
    for line in text.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return [x for x in lines if isinstance(x, dict) and "epoch" in x and "results" in x]


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
