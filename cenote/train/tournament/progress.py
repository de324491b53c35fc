"""How a tournament stands, read from its folder while it runs: no weights, no torch."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STILL = 300.0  # seconds without a change, after which it may have been stopped
SEEDS = 3  # where the plan does not say


def read_standing(folder: Path, groups: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Name, whether it runs, its stage, epochs done of how many, the report if it is over, and every contender.

    `groups` are those of the pools, for contenders that no report names yet.
    """
    plan = _json(folder / "plan.json")
    if not isinstance(plan, dict) or "contenders" not in plan:
        raise ValueError(f"{folder} holds no tournament that can be read")
    rounds = [_Round(path, plan) for path in _rounds(folder)]
    report = _json(folder / "results.json")
    # One that is open beside a report: more seeds were asked for.
    over = (
        isinstance(report, dict) and "standings" in report and not any(each.open for each in rounds)
    )
    still = time.time() - _changed(folder, rounds)
    running = not over and still < STILL
    seeds = [each for each in rounds if each.path.name != "rates"]
    known = (
        {row["name"]: row["group"] for row in report["standings"]} if over else dict(groups or {})
    )
    done, total = _progress(plan, rounds, report if over else None)
    return {
        "name": folder.resolve().name, "running": running, "stage": _stage(plan, rounds, over, still),
        "done": total if over else done, "total": total, "report": report if over else None,
        "contenders": [_contender(name, known.get(name, str(plan["kind"])), seeds, rounds) for name in
                       _ordered(plan, report if over else None)],
    }  # fmt: skip


class _Round:
    """A rehearsal or a seed: heats that are over, and the journal of the one that is not."""

    def __init__(self, path: Path, plan: Mapping[str, Any]) -> None:
        self.path, self.entries, self.epochs = path, dict[str, dict[str, Any]](), 0
        self.training = dict[str, float]()  # the latest score on validation
        self.heats, self.open, self.epoch, self.sizes = 0, False, 0, list[int]()
        for heat in sorted(
            path.glob("heat-*"), key=lambda heat: int(heat.name.partition("-")[2] or 0)
        ):
            self._read(heat)

    def _read(self, heat: Path) -> None:
        self.heats += 1
        found, lines = _json(heat / "results.json"), _lines(heat / "metrics.jsonl")
        last: dict[str, Any] = lines[-1] if lines else {"epoch": 0, "results": {}}
        self.epochs += int(last["epoch"])
        scores = dict[str, float]()
        for name, result in last["results"].items():
            name = name.rpartition("@")[0]
            scores[name] = max(
                scores.get(name, -math.inf), float(result.get("accuracy", result.get("score", 0.0)))
            )
        self.sizes.append(len(scores))
        if isinstance(found, dict) and "entries" in found:
            self.entries |= found["entries"]
        else:
            self.training |= scores
            self.open, self.epoch = True, int(last["epoch"])


def _rounds(folder: Path) -> list[Path]:
    seeds = [path for path in folder.glob("seed-*") if path.name.partition("-")[2].isdigit()]
    first = [folder / "rates"] if (folder / "rates").is_dir() else []
    return [*first, *sorted(seeds, key=lambda path: int(path.name.partition("-")[2]))]


def _contender(name: str, group: str, seeds: list[_Round], rounds: list[_Round]) -> dict[str, Any]:
    over = [
        each.entries[name] for each in seeds if each.entries.get(name, {}).get("failed", "") is None
    ]
    val = [float(found["val"]) for found in over]
    under = next((each for each in reversed(rounds) if name in each.training), None)
    if under is not None:
        val.append(under.training[name])
    accuracy = [float(found["accuracy"]) for found in over if found.get("accuracy") is not None]
    return {
        "name": name,
        "group": group,
        "accuracy": accuracy,
        "val": val,
        "epoch": under.epoch if under else 0,
    }


def _progress(plan: Mapping[str, Any], rounds: list[_Round], report: Any) -> tuple[int, int]:
    """Epochs; heats that are still to come are as large as those that were."""
    epochs = int(plan.get("settings.epochs", 1))
    third = max(1, round(epochs / 3)) if len(plan.get("rates", ())) > 1 else 0
    seeds = max(int(report["seeds"] if report else plan.get("seeds", SEEDS)),
                sum(each.path.name != "rates" for each in rounds))  # fmt: skip
    heats = max((_heats(each, len(plan["contenders"])) for each in rounds), default=1)
    rehearsal = max(
        (_heats(each, len(plan["contenders"])) for each in rounds if each.path.name == "rates"),
        default=1,
    )
    total = third * rehearsal + seeds * epochs * heats
    return min(sum(each.epochs for each in rounds), total), total


def _heats(each: _Round, contenders: int) -> int:
    largest = max(each.sizes, default=0)
    return max(each.heats, math.ceil(contenders / largest) if largest else 1)


def _stage(plan: Mapping[str, Any], rounds: list[_Round], over: bool, still: float) -> str:
    if over:
        return "finished"
    if still >= STILL:  # a long epoch looks the same from here
        return f"no change for {still // 60:.0f} minutes: if it was stopped, the same command with --resume goes on"
    if not rounds:
        return "reading the images"
    last = rounds[-1]
    epochs = int(plan.get("settings.epochs", 1))
    if last.path.name == "rates":
        return f"choosing rates, epoch {last.epoch} of {max(1, round(epochs / 3))}"
    number = sum(each.path.name != "rates" for each in rounds)
    return (
        f"seed {number}, epoch {last.epoch} of {epochs}"
        if last.open
        else f"seed {number} is judged"
    )


def _ordered(plan: Mapping[str, Any], report: Any) -> list[str]:
    return (
        [row["name"] for row in report["standings"]]
        if report
        else [str(name) for name in plan["contenders"]]
    )


def _changed(folder: Path, rounds: list[_Round]) -> float:
    files = [folder / "plan.json", folder, *(each.path for each in rounds)]
    files += [path for each in rounds for path in each.path.glob("heat-*/*")]
    return max((_time(path) for path in files), default=0.0)


def _time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _lines(path: Path) -> list[dict[str, Any]]:
    """Whole lines: the last one may be cut off."""
    try:
        text = path.read_text()
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [
        line for line in found if isinstance(line, dict) and "epoch" in line and "results" in line
    ]


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
