"""Random search: many trainings with drawn settings, the best on validation kept and tested once."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Dataset
from ..data.files import write_atomically
from ..data.splits import Splits, split
from ..models import load, save_model
from ..predict.distributed import processes
from ..predict.feature_cache import FeatureCache
from .checkpoint import NAME as CHECKPOINT
from .choices import Choices
from .config import refuse_changes
from .engine import Diverged, Stopped
from .fit import fit, identity, judge_once
from .log import muted, write_results
from .search_space import TRIALS, Range, apply
from .trials import Trials

Say = Callable[[str], None]
WEIGHTS = ("model.safetensors", "config.json")


def sweep(
    data: Dataset,
    folder: Path,
    choices: Choices,
    space: dict[str, Range],
    trials: int = TRIALS,
    cache: FeatureCache | None = None,
    say: Say = print,
) -> dict[str, Any]:
    """Train `trials` times, or what is left of that in `folder`, then choose.

    The validation split chooses, by `settings.select`; the test split is kept from all trials and judges the best one,
    once. The report is that of the best trial, with `trials` done, failed, and in work elsewhere.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError(
            "a sweep shares its trials, not their batches: start it several times on one folder instead"
        )
    if trials < 1:
        raise ValueError(f"a sweep has at least one trial, got {trials}")
    settings = choices.training()
    apply(
        choices, {name: found.low for name, found in space.items()}
    )  # what cannot be searched for is told now
    splits = split(data, seed=settings.seed)
    shown = data if splits.test is None else data.select(~np.isin(data.rows, splits.test.rows))
    kept = Trials(folder, space, settings.seed)
    _same_search(kept, choices, splits)
    while True:
        with kept.take(trials) as taken:
            if taken is None:
                break
            _run(kept, trials, *taken, choices, shown, cache, say)
        with kept.locked():
            _tidy(kept)
    return _finish(kept, splits, choices, say)


def _run(
    kept: Trials,
    of: int,
    number: int,
    drawn: dict[str, Any],
    choices: Choices,
    data: Dataset,
    cache: FeatureCache | None,
    say: Say,
) -> None:
    folder, started = kept.folder_of(number), time.monotonic()
    say(
        f"trial {number + 1} of {of}: {', '.join(f'{key} {value:.3g}' for key, value in drawn.items())}"
    )
    resume = (folder / CHECKPOINT).exists()
    try:
        with muted():
            report = fit(data, folder, apply(choices, drawn), cache, resume, lambda sentence: None)
    except Diverged as failure:
        kept.tell(number, None, why=str(failure).split(", with ")[0])
        say(f"  failed: {failure}")
        return
    except Stopped as stop:
        raise Stopped(
            str(stop).replace(f"--resume -o {folder}", f"the same command: -o {kept.folder}")
        ) from stop
    by, seconds = choices.training().select, time.monotonic() - started
    value = round(
        report["val"][by], 6
    )  # the noise of floating point must not decide between equals
    kept.tell(
        number,
        value,
        epoch=report["epoch"],
        seconds=round(seconds, 1),
        accuracy=round(report["val"]["accuracy"], 3),
    )
    best = kept.best()
    say(
        f"  {by} {value:.2f} on val, {seconds:.0f} s; best so far {best.value:.2f}, of trial {best.number + 1}"
    )


def _same_search(kept: Trials, choices: Choices, splits: Splits) -> None:
    """A folder holds one search: trials of two would not be comparable."""
    settings = dataclasses.asdict(choices.training())
    now = {
        **settings,
        **identity(choices, splits),
        "search": {name: list(r) for name, r in kept.space.items()},
    }
    now = json.loads(
        json.dumps({key: value for key, value in now.items() if key not in kept.space})
    )
    with kept.locked():
        before = kept.study.user_attrs.get("asked")
        if before is None:
            kept.study.set_user_attr("asked", now)
        else:
            refuse_changes(before, now)


def _tidy(kept: Trials) -> None:
    """The table as it is now; of finished trials only the best one's weights stay."""
    best, states = kept.best(), kept.optuna.trial.TrialState
    for trial in kept.all():
        folder = kept.folder_of(trial.number)
        done = trial.state != states.RUNNING
        gone = [CHECKPOINT] if done else []
        gone += WEIGHTS if done and (best is None or trial.number != best.number) else ()
        for name in gone:
            (folder / name).unlink(missing_ok=True)
    with (
        write_atomically(kept.folder / "trials.csv") as temporary,
        open(temporary, "w", newline="") as file,
    ):
        csv.writer(file).writerows(table(kept))


def table(kept: Trials) -> list[list[str]]:
    """A row for each trial, under a row of names."""
    notes = ("accuracy", "epoch", "seconds", "why")
    rows = [["trial", "state", "value", *kept.space, *notes]]
    for trial in kept.all():
        value = "" if trial.value is None else f"{trial.value:.3f}"
        drawn = [f"{trial.params[key]:.6g}" if key in trial.params else "" for key in kept.space]
        state = {"COMPLETE": "done", "FAIL": "failed", "RUNNING": "in work"}.get(
            trial.state.name, trial.state.name
        )
        rows.append(
            [
                str(trial.number + 1),
                state,
                value,
                *drawn,
                *(str(trial.user_attrs.get(k, "")) for k in notes),
            ]
        )
    return rows


def _finish(kept: Trials, splits: Splits, choices: Choices, say: Say) -> dict[str, Any]:
    """Save the best trial's model in FOLDER/best, and judge it on test if it was not judged before."""
    out = kept.folder / "best"
    with kept.locked():
        _tidy(kept)
        counts = {
            name: sum(row[1] == name for row in table(kept))
            for name in ("done", "failed", "in work")
        }
        if counts["in work"]:
            say(f"{counts['in work']} trials are in work elsewhere: who ends last chooses the best")
            return {"trials": counts, "test": None}
        best = kept.best()
        if best is None:
            raise Stopped(
                f"all {counts['failed']} trials failed: {kept.all()[0].user_attrs.get('why')}; search lower rates"
            )
        try:
            report: dict[str, Any] = json.loads((out / "results.json").read_text())
        except (OSError, ValueError):
            report = {}
        if report.get("trial") != best.number + 1:
            report = json.loads((kept.folder_of(best.number) / "results.json").read_text())
            report |= {"trial": best.number + 1, "drawn": best.params, "value": best.value}
            model = load(kept.folder_of(best.number))
            if splits.test is not None:
                with processes() as device:
                    report["test"] = judge_once(
                        model.to(device), splits, choices.training(), device, say
                    )
            save_model(model.cpu(), out)
        report["trials"] = counts
        write_results(out, report)
    return report
