"""The parts of `cenote demo`: a stage runs once, again when its command or one before changes, never two at once."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cenote.cli import _demo_running, main
from cenote.cli._demo_findings import sentences
from cenote.cli._demo_progress import clock, pace, remaining
from cenote.cli._demo_report import asked
from cenote.cli._demo_running import StageFailed, done_before, only_one, run_stage
from cenote.cli._demo_stages import DEFAULT, Plan, Stage, query, stages, typed, winner
from cenote.cli.demo import _port


def printing(name: str, *words: str) -> Stage:
    return Stage(name, name, "print", 1.0, lambda: list(words), output=f"{name}/out.txt")


def nothing() -> None:
    pass


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "logs").mkdir()
    return Plan(tmp_path, 120, ("gap",), 1)


def test_a_stage_runs_once(plan: Plan) -> None:
    stage = printing("a", "--version")
    assert done_before(stage, plan, "") is None
    record = run_stage(stage, plan, "", nothing)
    assert (plan.folder / "a" / "out.txt").read_text().startswith("cenote ")
    assert record["command"] == f"cenote --version > {plan.folder}/a/out.txt" == typed(stage, plan, ["--version"])
    assert done_before(stage, plan, "") == record


def test_it_runs_again_when_anything_before_it_changed(plan: Plan) -> None:
    stage = printing("a", "--version")
    record = run_stage(stage, plan, "one", nothing)
    assert done_before(stage, plan, "another") is None
    assert done_before(printing("a", "-h"), plan, "one") is None
    old = plan.folder / "a" / "old.txt"
    old.write_text("of a run that is worth nothing now")
    again = run_stage(stage, plan, "another", nothing)
    assert again["name"] != record["name"] and not old.exists()
    (plan.folder / "a" / "out.txt").unlink()
    (plan.folder / "a").rmdir()
    assert done_before(stage, plan, "another") is None


def test_the_time_of_a_killed_part_is_kept(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written down while it runs: nobody can do so after a kill -9."""
    monkeypatch.setattr(_demo_running, "NOTED", 0.0)
    path, seen = plan.folder / "logs" / "a.json", []
    run_stage(printing("a", "pools"), plan, "", lambda: seen.append(json.loads(path.read_text())["seconds"]))
    assert seen == sorted(seen) and seen[-1] > seen[0]
    path.write_text(json.dumps({**json.loads(path.read_text()), "done": False, "seconds": 100.0, "cpu_seconds": 200.0}))
    again = run_stage(printing("a", "pools"), plan, "", nothing)
    assert 100 < again["seconds"] < 200 < again["cpu_seconds"] < 300


def test_another_version_runs_it_again(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = printing("a", "--version")
    record = run_stage(stage, plan, "", nothing)
    monkeypatch.setattr(_demo_running, "__version__", "another")
    assert done_before(stage, plan, "") is None
    again = run_stage(stage, plan, "", nothing)
    assert not again["resumed"] and again["name"] != record["name"] and done_before(stage, plan, "") == again


def test_a_stage_that_fails_says_its_last_lines(plan: Plan) -> None:
    stage = printing("a", "pools", "simpol")
    with pytest.raises(StageFailed) as failed:
        run_stage(stage, plan, "", nothing)
    first, told = str(failed.value).splitlines()
    assert first.startswith("cenote pools: no pool 'simpol'; did you mean 'simpool'?")
    assert "the stage a ended with code 2" in told and str(plan.folder / "logs" / "a.txt") in told
    assert done_before(stage, plan, "") is None and not (plan.folder / "a" / "out.txt").exists()


def test_an_interrupted_stage_stops_and_goes_on(plan: Plan) -> None:
    words = ["world", plan.at("world"), "--preset", "tiny", "--images", "800", "--jobs", "1"]
    stage = Stage("world", "world", "draw", 1.0, lambda: words)
    images = plan.folder / "world" / "images"

    def interrupt() -> None:
        if images.is_dir() and len(list(images.rglob("*.png"))) > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stage(stage, plan, "", interrupt)
    drawn = {path: path.stat().st_mtime_ns for path in images.rglob("0*.png")}
    assert 5 < len(drawn) < 800 and not (plan.folder / "world" / "annotations.jsonl").exists()
    first = json.loads((plan.folder / "logs" / "world.json").read_text())
    assert not first["done"] and first["seconds"] > 0 and first["cpu_seconds"] > 0
    second = run_stage(stage, plan, "", nothing)
    assert second["resumed"] and done_before(stage, plan, "") == second
    for spent in ("seconds", "cpu_seconds"):  # of both parts
        assert second[spent] > first[spent]
    assert {path: path.stat().st_mtime_ns for path in drawn} == drawn
    assert len((plan.folder / "world" / "annotations.jsonl").read_text().splitlines()) == 800


def test_one_demo_at_a_time(tmp_path: Path) -> None:
    script = "import sys; from cenote.cli import main; sys.exit(main(['demo', '-o', sys.argv[1]]))"
    with only_one(tmp_path / "d"):
        other = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "d")], capture_output=True, text=True, timeout=60
        )
    assert other.returncode == 2 and "another demo is running in" in other.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--pools", "simpol"], "no pool 'simpol'; did you mean 'simpool'?"),
        (["--images", "3"], "--images 3: 12 classes need at least 96, two of each to test"),
        (["--seeds", "0"], "--seeds 0: at least one"),
    ],
)
def test_mistakes_leave_nothing_behind(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "-o", str(tmp_path / "d"), *words]) == 2
    assert sentence in capsys.readouterr().err and not (tmp_path / "d").exists()


def test_a_page_that_cannot_be_opened_is_told_before_the_first_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "cenote.web", raising=False)
    assert main(["demo", "-o", str(tmp_path / "d"), "--serve"]) == 1
    assert "pip install 'cenote[web]'" in capsys.readouterr().err and not (tmp_path / "d").exists()


def test_a_folder_of_somebody_s_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "world").mkdir()
    (tmp_path / "world" / "mine.txt").write_text("mine")
    assert main(["demo", "-o", str(tmp_path)]) == 2
    assert "is not empty and holds no demo" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["world"] and os.listdir(tmp_path / "world") == ["mine.txt"]


def test_what_stages_look_for_and_do_not_find(plan: Plan) -> None:
    asked: list[tuple[Callable[[Plan], object], str]] = [
        (winner, "tournament/results.json"),
        (query, "annotations.jsonl"),
    ]
    for look, name in asked:
        with pytest.raises(ValueError, match=f"{name}.*the same command"):
            look(plan)
    (plan.folder / "world").mkdir()
    (plan.folder / "world" / "annotations.jsonl").write_text(json.dumps({"label": "dog", "domain": "photo"}) + "\n")
    with pytest.raises(ValueError, match="none of the 120 images is the photograph of a cat"):
        query(plan)


def test_the_query_shows_one_large_object(plan: Plan) -> None:
    shown = [("a", "test", [[0, 0, 9, 9], [0, 0, 2, 2]]), ("b", "test", [[0, 0, 4, 4]]), ("c", "test", [[1, 1, 4, 6]]),
             ("d", "test", [[1, 1, 3, 3]]), ("e", "train", [[0, 0, 9, 9]])]  # fmt: skip
    lines = [{"file": f, "label": "cat", "domain": "photo", "split": s, "boxes": b} for f, s, b in shown]
    (plan.folder / "world").mkdir()
    (plan.folder / "world" / "annotations.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert query(plan)["file"] == "b"  # 16 pixels; c has 15
    assert asked(query(plan)) == "The photograph is the test image that shows a single cat largest."
    (plan.folder / "world" / "annotations.jsonl").write_text(json.dumps(lines[-1]) + "\n")
    assert query(plan)["file"] == "e"
    assert asked(query(plan)) == "The photograph is the training image that shows a single cat largest."
    (plan.folder / "world" / "annotations.jsonl").write_text(json.dumps(lines[0]) + "\n")
    assert asked(query(plan)) == "The photograph is the test image that shows one of several cats largest."


def test_the_default_is_one_plan(plan: Plan) -> None:
    """Notes of what was chosen for it are in no other's report."""
    assert replace(DEFAULT, folder=plan.folder).is_default()
    assert not any(replace(DEFAULT, **{key: getattr(plan, key)}).is_default() for key in ("images", "pools", "seeds"))


def test_costs_follow_what_is_asked(plan: Plan) -> None:
    few, many = (sum(one.seconds for one in stages(replace(plan, images=n))) for n in (100, 1000))
    assert few < many < 10 * few


def test_the_time_that_is_left() -> None:
    assert pace([]) == 1
    assert pace([(15, 45)]) == 2 and pace([(1, 3)]) == pytest.approx(18 / 16)  # a second says little
    assert remaining(10, 4, 20, 1) == 26 and remaining(10, 4, 20, 2) == 56
    assert remaining(10, 100, 0, 1) > 0  # it is not over before it is
    assert [clock(one) for one in (0, 59.4, 59.6, 605)] == ["0:00", "0:59", "1:00", "10:05"]


def test_what_the_search_found_is_told_also_when_it_is_nothing() -> None:
    def told(*results: tuple[bool, bool]) -> str:
        composed = {"results": [{"right": right, "learned": learned} for right, learned in results]}
        rest = dict.fromkeys(("images", "recommended", "recommendation", "accuracy", "boxes", "centred_box"))
        rest |= dict.fromkeys(("recall_at_1", "found_without_labels", "found_in_the_middle"))
        background = {"gap": None, "gap_interval": None}
        return sentences({**rest, "background": background, "texts": {}, "composed": composed})["search"]

    assert told((False, True), (False, False)) == "0 of the first 2 images are cats in sketches."
    assert told((True, True), (True, False), (False, True)) == (
        "2 of the first 3 images are cats in sketches; the small CLIP had learned 1 of these 2, as it had most images "
        "of the index."
    )


def test_a_port_that_is_taken_is_not_asked_for() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.listen()
        assert _port(port) == 0
    assert _port(port) == port
