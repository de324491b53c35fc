"""The parts of `cenote demo`: a stage runs once, again when its command or one before changes, never two at once."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest
import tyro
from PIL import Image

from cenote import __version__
from cenote.cli import demo_running, main
from cenote.cli.demo import free_port
from cenote.cli.demo_findings import findings, sentences, table
from cenote.cli.demo_progress import Progress, clock, pace, remaining
from cenote.cli.demo_report import NOTES, asked
from cenote.cli.demo_running import StageFailed, done_before, only_one, run_stage
from cenote.cli.demo_stages import DEFAULT, FINDER, Plan, Stage, query, stages, typed, winner
from cenote.report.html import Page, Text, read_page, write_page

SMALL = ["--images", "96", "--pools", "gap", "simpool", "--seeds", "1"]


def printing(name: str, *words: str) -> Stage:
    return Stage(name, name, "print", 1.0, lambda: list(words), output=f"{name}/out.txt")


def drawing(plan: Plan, images: int) -> Stage:
    words = ["world", plan.at("world"), "--preset", "tiny", "--images", str(images), "--jobs", "1"]
    return Stage("world", "world", "draw", 1.0, lambda: words)


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
    assert (
        record["command"]
        == f"cenote --version > {plan.folder}/a/out.txt"
        == typed(stage, plan, ["--version"])
    )
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


def test_the_time_of_a_killed_part_counts(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is written while the stage runs: after kill -9 it is too late."""
    monkeypatch.setattr(demo_running, "NOTED", 0.0)
    stage, path, seconds = drawing(plan, 48), plan.folder / "logs" / "world.json", []
    run_stage(stage, plan, "", lambda: seconds.append(json.loads(path.read_text())["seconds"]))
    assert seconds == sorted(seconds) and seconds[-1] > seconds[0]
    path.write_text(
        json.dumps(
            {**json.loads(path.read_text()), "done": False, "seconds": 1e4, "cpu_seconds": 2e4}
        )
    )
    again = run_stage(stage, plan, "", nothing)
    assert 1e4 < again["seconds"] < 2e4 < again["cpu_seconds"] < 3e4


def test_another_version_runs_it_again(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = printing("a", "--version")
    record = run_stage(stage, plan, "", nothing)
    monkeypatch.setattr(demo_running, "__version__", "another")
    assert done_before(stage, plan, "") is None
    again = run_stage(stage, plan, "", nothing)
    assert (
        not again["resumed"]
        and again["name"] != record["name"]
        and done_before(stage, plan, "") == again
    )


def test_a_stage_that_fails_shows_its_last_lines(plan: Plan) -> None:
    stage = printing("a", "data", "no-such-folder")
    with pytest.raises(StageFailed) as failed:
        run_stage(stage, plan, "", nothing)
    last_lines, summary = str(failed.value).splitlines()
    assert last_lines.startswith("cenote data: ") and "no-such-folder" in last_lines
    assert "code 2" in summary and str(plan.folder / "logs" / "a.txt") in summary
    assert done_before(stage, plan, "") is None and not (plan.folder / "a" / "out.txt").exists()


def test_an_interrupted_stage_resumes(plan: Plan) -> None:
    stage, images = drawing(plan, 400), plan.folder / "world" / "images"

    def interrupt() -> None:
        if images.is_dir() and len(list(images.rglob("*.png"))) > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stage(stage, plan, "", interrupt)
    drawn = {path: path.stat().st_mtime_ns for path in images.rglob("0*.png")}
    assert 5 < len(drawn) < 400 and not (plan.folder / "world" / "annotations.jsonl").exists()
    first = json.loads((plan.folder / "logs" / "world.json").read_text())
    assert not first["done"] and first["seconds"] > 0 and first["cpu_seconds"] > 0
    second = run_stage(stage, plan, "", nothing)
    assert second["resumed"] and done_before(stage, plan, "") == second
    for unit in ("seconds", "cpu_seconds"):  # of both parts
        assert second[unit] > first[unit]
    assert {path: path.stat().st_mtime_ns for path in drawn} == drawn
    assert len((plan.folder / "world" / "annotations.jsonl").read_text().splitlines()) == 400


def test_a_stage_ends_with_its_demo(plan: Plan) -> None:
    """The demo holds a pipe to its stage, which kills itself when the other end is closed."""
    words, images = drawing(plan, 20_000).command(), plan.folder / "world" / "images"
    command = [sys.executable, "-m", "cenote.cli.demo_child", *words]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        end = time.monotonic() + 120
        while not list(images.glob("**/*.png")) and time.monotonic() < end:
            time.sleep(0.02)
        assert child.poll() is None and child.stdin is not None
        child.stdin.close()
        assert child.wait(120) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()


def test_one_demo_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with only_one(tmp_path / "d"):
        assert main(["demo", "-o", str(tmp_path / "d")]) == 2
    assert str(tmp_path / "d") in capsys.readouterr().err


def write_results(plan: Plan) -> None:
    """Write what the stages of a demo would leave behind, with records that say that all of them are done."""
    rows = [
        {
            "name": name,
            "pool": name,
            "lr": 0.01,
            "mean": mean,
            "deviation": 1.0,
            "boxes": [20.0, 30.0],
        }
        for name, mean in (("simpool", 80.0), ("gap", 70.0))
    ]
    score = {"max_box_acc_v2": {"score": 40.0}, "centred_box": {"score": 30.0}}
    background = {
        "gap": 5.0,
        "gap_interval": [2.0, 8.0],
        "accuracy": {"mixed_same": 70.0, "mixed_rand": 65.0},
    }
    shown = {
        "label": "cat",
        "domain": "photo",
        "split": "test",
        "boxes": [[0, 0, 9, 9]],
        "file": "cat.png",
    }
    answers = [
        {"path": plan.at("world/cat.png"), "class": "cat", "domain": "sketch", "split": "train",
         "why": {"words": [{"word": "fur"}]}},
        {"path": plan.at("world/gone.png"), "class": "dog", "domain": "photo", "split": "test"},
    ]  # fmt: skip
    results: dict[str, Any] = {
        "tournament": {"recommended": "simpool", "recommendation": "Take simpool.", "standings": rows},
        "evaluation": {"classify": {"accuracy": 75.0}, "localize": {"chosen": None, "oracle": score},
                       "background": background, "retrieve": {"recall@1": 60.0}},
        "found": {"methods": {FINDER: {"corloc": 50.0}, "centre": {"corloc": 25.0}}},
        "clip": {"val": {"zero_shot_class": 90.0, "zero_shot_domain": 85.0}},
        "search": answers,
    }  # fmt: skip
    for stage in stages(plan):
        (plan.folder / stage.folder).mkdir(parents=True)
        if stage.folder in results:
            (plan.folder / stage.folder / "results.json").write_text(
                json.dumps(results[stage.folder])
            )
            write_page(
                plan.folder / stage.folder,
                Page(stage.name, "", (Text(f"page of {stage.name}", ()),)),
            )
    (plan.folder / "world" / "annotations.jsonl").write_text(json.dumps(shown) + "\n")
    (plan.folder / "boxes" / "pictures").mkdir()
    for path in ("world/cat.png", "boxes/pictures/contact_sheet_1.jpg"):
        Image.new("RGB", (40, 30), (200, 100, 0)).save(plan.folder / path)
    (plan.folder / "logs").mkdir()
    (plan.folder / "demo.json").write_text("{}")
    for stage in stages(plan):
        record = {
            "command": typed(stage, plan, stage.command()),
            "after": " ".join(stage.needs),
            "resumed": False,
        }
        record |= {"version": __version__, "begun": 0.0, "name": stage.name, "done": True}
        record |= {"seconds": 2.0, "cpu_seconds": 1.0}
        (plan.folder / "logs" / f"{stage.name}.json").write_text(json.dumps(record))


@pytest.fixture
def finished(tmp_path: Path) -> Plan:
    plan = Plan(tmp_path / "d", 96, ("gap", "simpool"), 1)
    write_results(plan)
    return plan


def test_a_finished_demo_is_only_reported(
    finished: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = finished.folder
    before = {path: path.stat().st_mtime_ns for path in (folder / "logs").iterdir()}
    assert main(["demo", "-o", str(folder), *SMALL]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in (folder / "logs").iterdir()}
    printed, progress = capsys.readouterr()
    assert [line.split(":")[0] for line in progress.splitlines()] == [
        f"{number}/9 {stage.name}" for number, stage in enumerate(stages(finished), 1)
    ]
    report = json.loads((folder / "results.json").read_text())
    assert [stage["stage"] for stage in report["stages"]] == [
        stage.name for stage in stages(finished)
    ]
    assert report["accuracy"] == 75 and report["boxes"] == 40 and report["pools"][0]["boxes"] == 25
    assert [answer["right"] for answer in report["composed"]["results"]] == [True, False]
    assert printed.startswith(table(report)) and sentences(report)["search"] in printed
    assert (
        folder / "index.html"
    ).resolve().as_uri() in printed and f"cenote serve {folder}" in printed


def test_the_report_shows_the_page_of_every_stage(
    finished: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "-o", str(finished.folder), *SMALL]) == 0
    page = read_page(finished.folder)
    assert {type(block).__name__ for block in page.blocks} == {"Table", "Text", "Picture", "Panels"}
    assert (
        page.command
        == f"cenote demo -o {finished.folder} --images 96 --pools gap simpool --seeds 1"
    )
    text = (finished.folder / "index.html").read_text(encoding="utf-8")
    for name in ("tournament", "evaluate", "discover"):
        assert f"page of {name}" in text
    assert "fur" in text and asked(query(finished)) in text
    assert NOTES["discover"] not in text  # true of the default demo only


def test_serve_opens_the_page_of_a_finished_demo(
    finished: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[tuple[Path, ...]] = []

    def serve(runs: Annotated[tuple[Path, ...], tyro.conf.Positional], port: int) -> None:
        served.append(runs)

    monkeypatch.setattr("cenote.cli.serve.run", serve)
    assert main(["demo", "-o", str(finished.folder), *SMALL, "--serve"]) == 0
    assert served == [(finished.folder,)]


def test_a_broken_stage_ends_the_demo(finished: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(finished.folder / "index")  # so that it runs again; there is no model in clip/
    assert main(["demo", "-o", str(finished.folder), *SMALL]) == 1
    printed, error = capsys.readouterr()
    log = (finished.folder / "logs" / "index.txt").read_text().splitlines()
    assert (
        not printed
        and log[-1].startswith("cenote index: ")
        and f"cenote demo: {log[-1]}\n" in error
    )
    assert "code 2" in error and os.path.join("logs", "index.txt") in error
    assert typed(stages(finished)[7], finished, stages(finished)[7].command()) in error


def test_an_interrupted_demo(finished: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    shutil.rmtree(finished.folder / "index")
    monkeypatch.setattr(demo_running, "run_stage", interrupt)
    assert main(["demo", "-o", str(finished.folder), *SMALL]) == 130


def test_findings_without_boxes(finished: Plan) -> None:
    """Discovery on data without true boxes has no CorLoc."""
    (finished.folder / "found" / "results.json").write_text(json.dumps({"methods": None}))
    report = findings(finished)
    assert report["found_without_labels"] is None and report["found_in_the_middle"] is None


def test_the_table_has_at_most_five_pools() -> None:
    rows = [
        {"name": f"p{i}", "accuracy": None if i == 4 else 50.0, "deviation": 1, "boxes": None}
        for i in range(7)
    ]
    lines = table({"pools": rows, "recommended": "p0"}).splitlines()
    assert [line.split()[0] for line in lines[1:6]] == [
        f"p{i}" for i in range(5)
    ] and "50.0" not in lines[5]
    assert len(lines) == 7 and "2" in lines[6]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--pools", "simpol"], "no pool 'simpol'; did you mean 'simpool'?"),
        (["--images", "3"], "--images 3: 12 classes need at least 96, two of each to test"),
        (["--seeds", "0"], "--seeds 0: at least one"),
    ],
)
def test_sentences(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "-o", str(tmp_path / "d"), *words]) == 2
    assert sentence in capsys.readouterr().err and not (tmp_path / "d").exists()


def test_a_missing_web_server_is_noticed_before_the_first_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "cenote.web", raising=False)
    assert main(["demo", "-o", str(tmp_path / "d"), "--serve"]) == 1
    assert "'cenote[web]'" in capsys.readouterr().err and not (tmp_path / "d").exists()


def test_a_folder_with_other_files_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "world").mkdir()
    (tmp_path / "world" / "mine.txt").write_text("mine")
    assert main(["demo", "-o", str(tmp_path)]) == 2
    assert f"-o {tmp_path} " in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["world"] and os.listdir(tmp_path / "world") == ["mine.txt"]


def test_missing_results_of_earlier_stages(plan: Plan) -> None:
    readers: list[tuple[Callable[[Plan], object], str]] = [
        (winner, r"tournament/results\.json"),
        (query, r"annotations\.jsonl"),
    ]
    for look, name in readers:
        with pytest.raises(ValueError, match=name):
            look(plan)
    (plan.folder / "world").mkdir()
    (plan.folder / "world" / "annotations.jsonl").write_text(
        json.dumps({"label": "dog", "domain": "photo"}) + "\n"
    )
    with pytest.raises(ValueError, match=r"\b120\b.*\bcat\b"):
        query(plan)


def test_the_query_shows_one_large_object(plan: Plan) -> None:
    images = [("a", "test", [[0, 0, 9, 9], [0, 0, 2, 2]]), ("b", "test", [[0, 0, 4, 4]]), ("c", "test", [[1, 1, 4, 6]]),
             ("d", "test", [[1, 1, 3, 3]]), ("e", "train", [[0, 0, 9, 9]])]  # fmt: skip
    lines = [
        {"file": f, "label": "cat", "domain": "photo", "split": s, "boxes": b} for f, s, b in images
    ]
    (plan.folder / "world").mkdir()
    (plan.folder / "world" / "annotations.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in lines)
    )
    assert query(plan)["file"] == "b"  # 16 pixels; c has 15
    notes = [asked(query(plan))]
    (plan.folder / "world" / "annotations.jsonl").write_text(json.dumps(lines[-1]) + "\n")
    assert query(plan)["file"] == "e"
    notes.append(asked(query(plan)))
    (plan.folder / "world" / "annotations.jsonl").write_text(json.dumps(lines[0]) + "\n")
    notes.append(asked(query(plan)))
    assert len(set(notes)) == 3 and all("cat" in note for note in notes)


def test_the_default_is_one_plan(plan: Plan) -> None:
    """Notes of what was chosen for it are in no other's report."""
    assert replace(DEFAULT, folder=plan.folder).is_default()
    assert not any(
        replace(DEFAULT, **{key: getattr(plan, key)}).is_default()
        for key in ("images", "pools", "seeds")
    )


def test_costs_follow_what_is_asked(plan: Plan) -> None:
    few, many = (sum(one.seconds for one in stages(replace(plan, images=n))) for n in (100, 1000))
    assert few < many < 10 * few


def test_the_time_that_is_left() -> None:
    assert pace([]) == 1
    assert pace([(15, 45)]) == 2 and pace([(1, 3)]) == pytest.approx(
        18 / 16
    )  # a second says little
    assert remaining(10, 4, 20, 1) == 26 and remaining(10, 4, 20, 2) == 56
    assert remaining(10, 100, 0, 1) > 0  # it is not over before it is
    assert [clock(one) for one in (0, 59.4, 59.6, 605)] == ["0:00", "0:59", "1:00", "10:05"]


def test_search_results_that_the_model_was_trained_on_are_counted() -> None:
    def sentence(*results: tuple[bool, bool]) -> str:
        composed = {"results": [{"right": right, "learned": learned} for right, learned in results]}
        rest = dict.fromkeys(
            ("images", "recommended", "recommendation", "accuracy", "boxes", "centred_box")
        )
        rest |= dict.fromkeys(("recall_at_1", "found_without_labels", "found_in_the_middle"))
        background = {"gap": None, "gap_interval": None}
        return sentences({**rest, "background": background, "texts": {}, "composed": composed})[
            "search"
        ]

    def numbers(text: str) -> list[int]:
        return [int(word) for word in re.findall(r"\d+", text)]

    assert numbers(sentence((False, True), (False, False))) == [0, 2]  # right, shown
    assert numbers(sentence((True, True), (True, False), (False, True))) == [
        2,
        3,
        1,
        2,
    ]  # and trained on, of the right


def test_a_port_that_is_taken_is_not_asked_for() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.listen()
        assert free_port(port) == 0
    assert free_port(port) == port


def test_progress_of_the_stages(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = printing("a", "--version"), printing("b", "--version")
    progress = Progress([first, second])
    progress.begin(first, "cenote --version")
    progress.tick()
    progress.end(first, {"resumed": False, "seconds": 65.0})
    progress.end(second, {"resumed": True, "seconds": 9.0}, before=True)
    progress.close()
    begun, command, ended, already_done = capsys.readouterr().err.splitlines()
    assert (
        begun.startswith("1/2 a: ")
        and command.strip() == "cenote --version"
        and ended.endswith("1:05")
    )
    assert already_done.startswith("2/2 b: ")
    assert progress.timed == [(1.0, 65.0)]  # a resumed stage did some work twice: it does not count
