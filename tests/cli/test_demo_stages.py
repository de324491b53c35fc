"""Stages of `cenote demo` without training: run once, run again after changes, resume, fail, are reported."""

import json
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest
import tyro
from filelock import FileLock
from PIL import Image

from cenote import __version__
from cenote.cli import demo as demo_module
from cenote.cli import main
from cenote.cli.demo import (
    MARKER,
    NOTES,
    STAGES,
    DemoOptions,
    Stage,
    collect_results,
    command_of,
    describe_results,
    find_query,
    format_minutes,
    record_path,
    run_stage,
)
from cenote.report.blocks import Block, Maps, Page, Text
from cenote.report.html import read_page, write_page

SMALL = ["--images", "96", "--pools", "gap", "simpool", "--seeds", "1"]
FIRST = Stage("first", "first", "print the version", "--version", output="out.txt")
SECOND = Stage("second", "second", "print the version", "--version", ("first",), output="out.txt")
WORLD = "world DIR/world --preset tiny --images IMAGES --jobs 1"


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoOptions:
    monkeypatch.setattr(demo_module, "STAGES", (FIRST, SECOND))
    return DemoOptions(tmp_path, 120, ("gap",), 1)


def use_world(monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage("world", "world", "draw", WORLD)
    monkeypatch.setattr(demo_module, "STAGES", (stage,))
    return stage


def read_record(stage: Stage, demo: DemoOptions) -> Any:
    return json.loads(record_path(stage, demo).read_text())


def test_a_stage_runs_once(demo: DemoOptions, capsys: pytest.CaptureFixture[str]) -> None:
    record = run_stage(FIRST, demo)
    output = demo.folder / "first" / "out.txt"
    assert output.read_text().startswith("cenote ") and record["done"] and record["seconds"] > 0
    assert record["command"] == f"cenote --version > {output}"
    title, command, ending = capsys.readouterr().err.splitlines()
    assert title == "1/2 first: print the version" and command.strip() == record["command"]
    assert re.search(r"\d:\d\d$", ending)
    output.write_text("unchanged")
    assert run_stage(FIRST, demo) == record and output.read_text() == "unchanged"
    assert capsys.readouterr().err == "1/2 first: done already\n"


def test_a_stage_runs_again_after_a_change(
    demo: DemoOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command, another version, a removed folder, or a new run of a stage that it needs."""

    def runs_again(stage: Stage) -> bool:
        old = demo.folder / stage.folder / "old.txt"
        if old.parent.is_dir():
            old.write_text("from an earlier run")
        assert run_stage(stage, demo)["done"]
        return not old.exists()

    assert runs_again(FIRST) and runs_again(SECOND)
    assert not runs_again(FIRST) and not runs_again(SECOND)
    shutil.rmtree(demo.folder / "first")
    assert runs_again(FIRST) and runs_again(SECOND) and not runs_again(SECOND)
    changed = replace(FIRST, command="-h")
    monkeypatch.setattr(demo_module, "STAGES", (changed, SECOND))
    assert runs_again(changed) and runs_again(SECOND)
    monkeypatch.setattr(demo_module, "__version__", "another")
    assert runs_again(changed) and runs_again(SECOND)


def test_a_failed_stage_shows_the_end_of_its_log(
    demo: DemoOptions, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = replace(FIRST, command="data no-such-folder")
    monkeypatch.setattr(demo_module, "STAGES", (stage,))
    with pytest.raises(SystemExit) as failed:
        run_stage(stage, demo)
    reason, summary = capsys.readouterr().err.splitlines()[-2:]
    assert failed.value.code == 1
    assert reason.startswith("cenote demo: cenote data: ") and "no-such-folder" in reason
    assert "code 2" in summary and str(demo.folder / "logs" / "first.txt") in summary
    assert not read_record(stage, demo)["done"]


def test_an_interrupted_stage_resumes(demo: DemoOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, demo = use_world(monkeypatch), replace(demo, images=400)
    images = demo.folder / "world" / "images"

    def interrupt() -> None:
        while len(list(images.rglob("0*.png"))) <= 5:  # a file being written has another name
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_stage(stage, demo)
    thread.join()
    drawn = {path: path.stat().st_mtime_ns for path in images.rglob("0*.png")}
    assert 5 < len(drawn) < 400 and not (demo.folder / "world" / "annotations.jsonl").exists()
    first = read_record(stage, demo)
    assert not first["done"] and first["seconds"] > 0
    second = run_stage(stage, demo)
    assert second["done"] and second["seconds"] > first["seconds"]  # the time of both runs
    assert {path: path.stat().st_mtime_ns for path in drawn} == drawn
    assert len((demo.folder / "world" / "annotations.jsonl").read_text().splitlines()) == 400


def test_a_resumed_command_gets_its_flag(
    demo: DemoOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = replace(FIRST, resume=True)
    monkeypatch.setattr(demo_module, "STAGES", (stage,))
    commands: list[list[str]] = []

    def run_command(words: list[str], log: Path, output: Path) -> int:
        commands.append(words)
        output.parent.mkdir(exist_ok=True)
        log.touch()
        return 130 * (len(commands) == 1)

    monkeypatch.setattr(demo_module, "run_command", run_command)
    with pytest.raises(KeyboardInterrupt):
        run_stage(stage, demo)
    run_stage(stage, demo)
    assert commands == [["--version"], ["--version", "--resume"]]


def test_one_demo_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / MARKER).write_text("{}")
    with FileLock(tmp_path / ".lock"):
        assert main(["demo", "-o", str(tmp_path)]) == 2
    assert f"another demo is running in {tmp_path}" in capsys.readouterr().err


def write_results(demo: DemoOptions) -> None:
    """Write the results of all stages, with records that say that they are done."""
    folder = demo.folder
    rows = [
        {"name": name, "pool": name, "lr": 0.01, "mean": mean, "deviation": 1.0, "boxes": [20, 30]}
        for name, mean in (("simpool", 80.0), ("gap", 70.0))
    ]
    boxes = {"max_box_acc_v2": {"score": 40.0}, "centred_box": {"score": 30.0}}
    background = {"gap": 5.0, "gap_interval": [2.0, 8.0], "accuracy": {"mixed_same": 70.0}}
    cat = {"path": f"{folder}/world/cat.png", "class": "cat", "domain": "sketch", "split": "train"}
    cat |= {"why": {"words": [{"word": "fur"}]}}  # type: ignore[dict-item]
    dog = {"path": f"{folder}/world/cat.png", "class": "dog", "domain": "photo", "split": "test"}
    results: dict[str, Any] = {
        "tournament": {
            "recommended": "simpool",
            "recommendation": "Take simpool.",
            "standings": rows,
        },
        "evaluation": {
            "classify": {"accuracy": 75.0},
            "localize": {"chosen": None, "oracle": boxes},
            "background": background,
            "retrieve": {"recall@1": 60.0},
        },
        "found": {"methods": {"lost": {"corloc": 50.0}, "centre": {"corloc": 25.0}}},
        "clip": {"val": {"zero_shot_class": 90.0, "zero_shot_domain": 85.0}},
        "search": [cat, dog],
    }
    for stage in STAGES:
        (folder / stage.folder).mkdir(parents=True)
        if stage.folder in results:
            text = json.dumps(results[stage.folder])
            (folder / stage.folder / "results.json").write_text(text)
            blocks: list[Block] = [Text(f"page of {stage.name}", ())]
            if stage.name == "tournament":
                blocks.append(Maps("maps", ()))
            page = Page(stage.name, "", tuple(blocks))
            write_page(folder / stage.folder, page)
    annotation = {"label": "cat", "domain": "photo", "split": "test", "boxes": [[0, 0, 9, 9]]}
    text = json.dumps({**annotation, "file": "cat.png"}) + "\n"
    (folder / "world" / "annotations.jsonl").write_text(text)
    (folder / "boxes" / "pictures").mkdir()
    for path in ("world/cat.png", "boxes/pictures/contact_sheet_1.jpg"):
        Image.new("RGB", (40, 30), (200, 100, 0)).save(folder / path)
    (folder / "logs").mkdir()
    (folder / MARKER).write_text("{}")
    (folder / "tournament" / "table.txt").write_text("title\n\nthe table\n\nnotes\n")
    for stage in STAGES:
        command = " ".join(["cenote", *command_of(stage, demo)])
        if stage.output:
            command += f" > {folder / stage.folder / stage.output}"
        record = {"command": command, "version": __version__, "seconds": 2.0, "done": True}
        record_path(stage, demo).write_text(json.dumps(record))


@pytest.fixture
def finished(tmp_path: Path) -> DemoOptions:
    demo = DemoOptions(tmp_path / "d", 96, ("gap", "simpool"), 1)
    write_results(demo)
    return demo


def test_a_finished_demo_is_only_reported(
    finished: DemoOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = finished.folder
    before = {path: path.stat().st_mtime_ns for path in (folder / "logs").iterdir()}
    assert main(["demo", "-o", str(folder), *SMALL]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in (folder / "logs").iterdir()}
    printed, progress = capsys.readouterr()
    assert [line.split(":")[0] for line in progress.splitlines()] == [
        f"{number}/8 {stage.name}" for number, stage in enumerate(STAGES, 1)
    ]
    report = json.loads((folder / "results.json").read_text())
    assert [stage["stage"] for stage in report["stages"]] == [stage.name for stage in STAGES]
    assert report["accuracy"] == 75 and report["boxes"] == 40 and report["pools"][0]["boxes"] == 25
    assert [answer["right"] for answer in report["composed"]["results"]] == [True, False]
    assert printed.startswith("the table\n")
    assert describe_results(report)["search"] in printed
    assert (folder / "index.html").resolve().as_uri() in printed
    assert f"cenote serve {folder}" in printed


def test_the_report_shows_the_page_of_every_stage(finished: DemoOptions) -> None:
    assert main(["demo", "-o", str(finished.folder), *SMALL]) == 0
    page = read_page(finished.folder)
    assert {block.kind for block in page.blocks} == {"maps", "table", "text", "picture", "panels"}
    assert (page.blocks[0].kind, page.blocks[-1].title) == ("maps", "Stages")
    assert page.command == f"cenote demo -o {finished.folder} {' '.join(SMALL)}"
    text = (finished.folder / "index.html").read_text(encoding="utf-8")
    for name in ("tournament", "evaluate", "discover"):
        assert f"page of {name}" in text
    assert "fur" in text and "of the test images" in text
    assert (
        NOTES[0] in text and "FreeDom's words on test" not in text
    )  # true of the default demo only


def test_serve_opens_the_page_of_a_finished_demo(
    finished: DemoOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[tuple[Path, int]] = []

    def serve(runs: Annotated[tuple[Path, ...], tyro.conf.Positional], port: int) -> None:
        served.append((runs[0], port))

    monkeypatch.setattr("cenote.cli.serve.run", serve)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        monkeypatch.setattr(demo_module, "PORT", port)
        assert main(["demo", "-o", str(finished.folder), *SMALL, "--serve"]) == 0
        other.listen()  # now the port is occupied: a free one is used
        assert main(["demo", "-o", str(finished.folder), *SMALL, "--serve"]) == 0
    assert served == [(finished.folder, port), (finished.folder, 0)]


def test_a_broken_stage_ends_the_demo(
    finished: DemoOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(finished.folder / "index")  # so that it runs again; there is no model in clip/
    assert main(["demo", "-o", str(finished.folder), *SMALL]) == 1
    printed, error = capsys.readouterr()
    log = (finished.folder / "logs" / "index.txt").read_text().splitlines()
    assert not printed and log[-1].startswith("cenote index: ")
    assert f"cenote demo: {log[-1]}\n" in error
    assert "code 2" in error and os.path.join("logs", "index.txt") in error
    assert " ".join(command_of(STAGES[6], finished)) in error


def test_an_interrupted_demo(finished: DemoOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    shutil.rmtree(finished.folder / "index")
    monkeypatch.setattr(demo_module, "run_command", interrupt)
    assert main(["demo", "-o", str(finished.folder), *SMALL]) == 130


def test_results_without_boxes(finished: DemoOptions) -> None:
    """Discovery on data without true boxes has no CorLoc."""
    (finished.folder / "found" / "results.json").write_text(json.dumps({"methods": None}))
    report = collect_results(finished.folder)
    assert report["found_without_labels"] is None and report["found_in_the_middle"] is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--pools", "simpol"], "no pool 'simpol'; did you mean 'simpool'?"),
        (["--images", "3"], "--images 3: 12 classes need at least 96, two of each to test"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
    ],
)
def test_wrong_options(
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


def test_missing_results_of_earlier_stages(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"annotations\.jsonl"):
        find_query(tmp_path)
    (tmp_path / "world").mkdir()
    dog = json.dumps({"label": "dog", "domain": "photo"})
    (tmp_path / "world" / "annotations.jsonl").write_text(dog + "\n")
    with pytest.raises(ValueError, match=r"\bcat\b.*--images"):
        find_query(tmp_path)


def test_the_query_shows_one_large_object(tmp_path: Path) -> None:
    images: dict[str, tuple[str, list[list[int]]]] = {
        "a": ("test", [[0, 0, 9, 9], [0, 0, 2, 2]]),
        "b": ("test", [[0, 0, 4, 4]]),
        "c": ("test", [[1, 1, 4, 6]]),
        "d": ("test", [[1, 1, 3, 3]]),
        "e": ("train", [[0, 0, 9, 9]]),
    }

    def query(names: str) -> str:
        lines = []
        for name in names:
            split, boxes = images[name]
            cat = {"file": name, "label": "cat", "domain": "photo", "split": split, "boxes": boxes}
            lines.append(json.dumps(cat))
        (tmp_path / "world").mkdir(exist_ok=True)
        (tmp_path / "world" / "annotations.jsonl").write_text("\n".join(lines))
        return str(find_query(tmp_path)["file"])

    assert query("abcde") == "b"  # 16 pixels; c has 15
    assert (query("ad"), query("ae"), query("e")) == ("d", "a", "e")


def test_search_results_that_the_model_was_trained_on_are_counted() -> None:
    def numbers(*results: tuple[bool, bool]) -> list[int]:
        images = [{"right": right, "learned": learned} for right, learned in results]
        keys = ("images", "recommended", "recommendation", "accuracy", "boxes", "centred_box")
        report: dict[str, Any] = dict.fromkeys(keys)
        report |= dict.fromkeys(("recall_at_1", "found_without_labels", "found_in_the_middle"))
        report["background"] = {"gap": None, "gap_interval": None}
        report |= {"texts": {}, "composed": {"results": images}}
        return [int(word) for word in re.findall(r"\d+", describe_results(report)["search"])]

    assert numbers((False, True), (False, False)) == [0, 2]  # correct, shown
    assert numbers((True, True), (True, False), (False, True)) == [2, 3, 1]  # and trained on


def test_minutes() -> None:
    assert [format_minutes(s) for s in (0, 59.4, 59.6, 605)] == ["0:00", "0:59", "1:00", "10:05"]
