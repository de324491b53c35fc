"""How a tournament stands is read from its folder at every moment of it, also from files that are cut off."""

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from cenote.train.tournament.progress import CandidateProgress, TournamentProgress, read_progress

PLAN = {
    "backbone": "lite0", "kind": "pools", "contenders": ["gap", "simpool", "slot"], "rates": [0.001, 0.01],
    "settings.epochs": 6, "settings.seed": 4, "groups": {"gap": "simple", "simpool": "SimPool"},
}  # fmt: skip


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def journal(*epochs: dict[str, float]) -> str:
    rows = [
        {
            "epoch": i,
            "results": {
                name: {"score": score, "accuracy": score, "loss": 1.0}
                for name, score in row.items()
            },
        }
        for i, row in enumerate(epochs, 1)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def entry(val: float, accuracy: float | None, failed: str | None = None) -> dict[str, Any]:
    return {"val": val, "accuracy": accuracy, "failed": failed, "lr": 0.01}


def numbers(stage: str) -> list[int]:
    """The numbers of the sentence that describes a stage: seed, epoch, number of epochs."""
    return [int(number) for number in re.findall(r"\d+", stage)]


def of(progress: TournamentProgress, name: str) -> CandidateProgress:
    return next(each for each in progress.contenders if each.name == name)


def test_from_the_first_file_to_the_report(tmp_path: Path) -> None:
    write(tmp_path / "plan.json", PLAN)
    found = read_progress(tmp_path)
    assert (found.running, numbers(found.stage), found.done) == (True, [], 0)
    assert found.total == 3 * (2 + 3 * 6) and found.report is None and found.name == tmp_path.name
    assert [(each.name, each.group) for each in found.contenders] == [
        ("gap", "simple"), ("simpool", "SimPool"), ("slot", "pools"),
    ]  # fmt: skip

    rates = tmp_path / "rates" / "heat-1"
    tried = {
        "gap@0.001": 40.0,
        "gap@0.01": 50.0,
        "simpool@0.001": 60.0,
        "simpool@0.01": 55.0,
        "slot@0.001": 1.0,
    }
    write(rates / "metrics.jsonl", journal(tried) + '{"epoch": 2, "resu')  # a kill cut it off
    found = read_progress(tmp_path)
    assert numbers(found.stage) == [1, 2] and found.done == 3
    assert of(found, "gap") == CandidateProgress("gap", "simple", [], [50.0], 1)

    write(
        rates / "results.json",
        {"entries": {name: entry(50.0, None) for name in PLAN["contenders"]}},
    )  # type: ignore[union-attr]
    write(rates / "metrics.jsonl", journal(tried, tried))
    seed = tmp_path / "seed-4" / "heat-1"
    write(
        seed / "metrics.jsonl",
        journal(
            *[{"gap@0.01": 10.0 * i, "simpool@0.001": 70.0, "slot@0.001": 0.0} for i in range(3)]
        ),
    )
    found = read_progress(tmp_path)
    assert numbers(found.stage) == [1, 3, 6] and found.done == 3 * (2 + 3) and found.total == 60
    assert of(found, "gap").val == [20.0] and of(found, "gap").epoch == 3

    over = {
        "gap": entry(80.0, 78.0),
        "simpool": entry(90.0, 88.0),
        "slot": {"failed": "NaN", "rates": {}},
    }
    write(seed / "results.json", {"entries": over})
    found = read_progress(tmp_path)
    assert numbers(found.stage) == [1]
    assert of(found, "simpool") == CandidateProgress("simpool", "SimPool", [88.0], [90.0], 0)
    assert of(found, "slot").accuracy == of(found, "slot").val == []

    rows = [{"name": name, "group": "g"} for name in ("simpool", "gap", "slot")]
    write(tmp_path / "results.json", {"standings": rows, "seeds": 1})
    found = read_progress(tmp_path)
    assert (found.running, numbers(found.stage), found.done, found.total) == (
        False,
        [],
        3 * 8,
        3 * 8,
    )
    assert [each.name for each in found.contenders] == ["simpool", "gap", "slot"] and (
        found.report or {}
    )["seeds"] == 1

    write(
        tmp_path / "seed-5" / "heat-1" / "metrics.jsonl", journal({"gap@0.01": 30.0})
    )  # more seeds were asked for
    found = read_progress(tmp_path)
    assert found.running and found.report is None and numbers(found.stage) == [2, 1, 6]


def test_one_that_was_left_alone_may_have_been_stopped(tmp_path: Path) -> None:
    write(tmp_path / "plan.json", PLAN)
    for path in (tmp_path / "plan.json", tmp_path):
        os.utime(path, (time.time() - 3600,) * 2)
    found = read_progress(tmp_path)
    assert not found.running and found.report is None
    assert numbers(found.stage)[0] in (60, 61) and "--resume" in found.stage  # minutes


def test_epochs_are_summed_over_candidates(tmp_path: Path) -> None:
    write(tmp_path / "plan.json", {**PLAN, "rates": [0.01], "seeds": 2})
    row = {"gap@0.01": 1.0, "simpool@0.01": 1.0}
    write(tmp_path / "seed-4" / "heat-1" / "metrics.jsonl", journal(row))
    found = read_progress(tmp_path)
    assert found.total == 3 * 2 * 6 and found.done == 2, "two of three candidates in this heat"


@pytest.mark.parametrize("plan", [None, "{", "[]", "{}"])
def test_what_is_no_tournament(tmp_path: Path, plan: str | None) -> None:
    if plan is not None:
        (tmp_path / "plan.json").write_text(plan)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        read_progress(tmp_path)
