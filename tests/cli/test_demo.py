"""`cenote demo` from start to end, killed once in between; test_demo_stages.py tests its stages without training.

One small demo is run to its end, with a kill -9 in its tournament: it must end with the numbers of a tournament that
was not killed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from cenote.cli import main
from cenote.cli.demo import STAGES, DemoOptions, command_of
from cenote.report.html import read_page

# Two minutes of one core; a machine that is shared may take ten times as long.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
SMALL = ["--images", "96", "--pools", "gap", "simpool", "--seeds", "1"]


def demo(folder: Path) -> list[str]:
    return [sys.executable, "-m", "cenote", "demo", "-o", str(folder), *SMALL]


def processes_of(folder: Path) -> list[int]:
    """Processes with the folder's name in their command."""
    processes = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder) in (entry / "cmdline").read_text():
                processes.append(int(entry.name))
        except OSError:  # ended meanwhile
            continue
    return processes


def processes_of_group(group: int) -> list[str]:
    """Commands of a process group that still run, without zombies."""
    listed = subprocess.run(
        ["ps", "-e", "-o", "pgid=,stat=,args="], capture_output=True, text=True
    ).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    return [row[2] for row in rows if row[0] == str(group) and not row[1].startswith("Z")]


def until(happens: Any, seconds: float = 400) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("CENOTE_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> tuple[Path, str, str]:
    """The folder of a demo that was killed once, stderr and stdout of its second run."""
    folder = tmp_path_factory.mktemp("demo") / "d"
    first = subprocess.Popen(demo(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(
        lambda: (
            list((folder / "tournament").glob("*/heat-1/checkpoint.pt")) or first.poll() is not None
        )
    )
    first.send_signal(signal.SIGKILL)
    first.wait()
    if Path("/proc").is_dir():
        until(lambda: not processes_of(folder), 30)  # no stage of it runs on by itself
    killed = json.loads((folder / "logs" / "tournament.json").read_text())
    assert not killed["done"]
    second = subprocess.run(demo(folder), capture_output=True, encoding="utf-8", timeout=1000)
    assert second.returncode == 0, second.stderr
    return folder, second.stderr, second.stdout


def test_every_stage_is_announced_with_its_command(finished: tuple[Path, str, str]) -> None:
    folder, progress, _ = finished
    lines = progress.splitlines()
    assert lines[0].startswith("1/8 world: ") and not lines[1].startswith(" ")  # it was done
    for number, stage in enumerate(STAGES[1:], 2):
        place = lines.index(f"{number}/8 {stage.name}: {stage.description}")
        assert lines[place + 1].startswith(f"    cenote {stage.name} ") and re.search(
            r"\d:\d\d$", lines[place + 2]
        )
        assert (folder / "logs" / f"{stage.name}.txt").is_file()


def test_what_was_killed_ends_with_the_same_numbers(
    finished: tuple[Path, str, str], tmp_path: Path
) -> None:
    folder = finished[0]
    words = command_of(STAGES[1], DemoOptions(folder, 96, ("gap", "simpool"), 1))
    words[words.index("-o") + 1] = str(tmp_path / "whole")
    assert main(words) == 0
    whole, killed = (
        json.loads((run / "results.json").read_text())
        for run in (tmp_path / "whole", folder / "tournament")
    )
    timed = {"ms", "backbone_ms"}
    rows = [
        [{k: v for k, v in row.items() if k not in timed} for row in run["standings"]]
        for run in (whole, killed)
    ]
    assert rows[0] == rows[1] and whole["recommendation"] == killed["recommendation"]


def test_the_results(finished: tuple[Path, str, str]) -> None:
    folder, _, printed = finished
    report = json.loads((folder / "results.json").read_text())
    assert [row["stage"] for row in report["stages"]] == [stage.name for stage in STAGES]
    assert all(
        row["seconds"] > 0 and row["command"].startswith("cenote ") for row in report["stages"]
    )
    assert (
        report["accuracy"]
        == json.loads((folder / "evaluation" / "results.json").read_text())["classify"]["accuracy"]
    )
    assert len(report["pools"]) == 2 and report["recommended"] in {"gap", "simpool (gamma 2)"}
    assert len(report["composed"]["results"]) == 10
    assert report["recommended"] in printed and report["recommendation"] in printed
    assert (
        folder / "index.html"
    ).resolve().as_uri() in printed and f"cenote serve {folder}" in printed


def test_the_report_holds_every_stage(finished: tuple[Path, str, str]) -> None:
    folder = finished[0]
    page = read_page(folder)
    kinds = {type(block).__name__ for block in page.blocks}
    assert kinds >= {"Text", "Table", "Scatter", "Maps", "Boxes", "Bars", "Panels", "Picture"}
    text = (folder / "index.html").read_text(encoding="utf-8")
    for row in json.loads((folder / "results.json").read_text())["stages"]:
        assert row["command"].split(" > ")[0] in text
    assert "The photograph: the largest cat" in text
    assert page.command == f"cenote demo -o {folder} --images 96 --pools gap simpool --seeds 1"


def test_a_finished_demo_has_nothing_to_do(finished: tuple[Path, str, str]) -> None:
    folder, _, printed = finished
    before = {path: path.stat().st_mtime_ns for path in (folder / "logs").iterdir()}
    again = subprocess.run(demo(folder), capture_output=True, encoding="utf-8", timeout=400)
    assert again.returncode == 0 and again.stdout == printed
    assert len(again.stderr.splitlines()) == 8  # one line for each stage
    assert before == {path: path.stat().st_mtime_ns for path in (folder / "logs").iterdir()}


def test_serve_opens_the_page_and_ctrl_c_ends_it(finished: tuple[Path, str, str]) -> None:
    folder = finished[0]
    served = subprocess.Popen(
        [*demo(folder), "--serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a shell's background jobs ignore it
    )
    try:
        assert served.stdout is not None
        address = next(
            match[0] for line in served.stdout if (match := re.search(r"http://\S+", line))
        )
        with urlopen(address) as page, urlopen(f"{address}api/about") as about:
            assert page.status == 200 and json.load(about)["index"]["images"] == 96
        os.killpg(served.pid, signal.SIGINT)  # as a terminal does: to every process of the command
        assert served.wait(30) == 130
        until(lambda: not processes_of_group(served.pid), 30)
    finally:
        if served.poll() is None:
            os.killpg(served.pid, signal.SIGKILL)
        assert "Traceback" not in served.communicate()[1]


def test_a_broken_stage_ends_the_demo(finished: tuple[Path, str, str], tmp_path: Path) -> None:
    """This test is the last one: it damages the world."""
    folder = finished[0]
    truths = folder / "world" / "annotations.jsonl"
    whole = truths.read_text()
    truths.write_text(whole[:1000])
    shutil.rmtree(folder / "tournament")
    broken = subprocess.run(demo(folder), capture_output=True, encoding="utf-8", timeout=400)
    assert broken.returncode == 1 and not broken.stdout and "Traceback" not in broken.stderr
    log = (folder / "logs" / "tournament.txt").read_text().splitlines()
    assert (
        log[-1].startswith("cenote tournament: ") and f"cenote demo: {log[-1]}\n" in broken.stderr
    )
    assert "tournament" in broken.stderr and "code 2" in broken.stderr
    assert os.path.join("logs", "tournament.txt") in broken.stderr
