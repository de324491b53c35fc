"""A search draws as the paper does, loses no trial and runs none twice after a kill; only the best is tested."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote.cli import main
from cenote.data import Dataset
from cenote.models import load, save_model
from cenote.train import sweep as module
from cenote.train.checkpoint import NAME as CHECKPOINT
from cenote.train.config import PlainCropConfig, RunConfig
from cenote.train.configure import configure, with_values
from cenote.train.engine import Diverged
from cenote.train.log import Stopped
from cenote.train.recipes import load_recipe
from cenote.train.reports import FitReport, SweepReport
from cenote.train.sweep import (
    RANGES,
    SearchRange,
    draw,
    parse_range,
    refuse_fixed,
    search_space,
    searchable,
    sweep,
)
from tests.synthetic import split_rectangles
from tests.toy_models import narrow_resnet

SPACE = {"lr": SearchRange(1e-5, 1.0, True), "cutout": SearchRange(0.0, 0.5)}
LOWER = {**SPACE, "lr": SearchRange(1e-5, 0.1, True)}  # where no training of `pretend` fails
MODEL = {"backbone": "resnet_micro", "pool": "gap", "scratch": True, "size": 32}
CONFIG = configure("fit", **MODEL, epochs=1, batch=8, select="boxes")  # type: ignore[arg-type]


def test_ranges_are_the_papers_the_recipes_or_yours() -> None:
    assert search_space() == RANGES == {
        "lr": (1e-5, 1.0, True), "weight_decay": (1e-7, 1e-1, True), "cutout": (0.0, 0.5, False)
    }  # fmt: skip
    assert "cutout" not in search_space(freeze=True)
    assert set(search_space(recipe=load_recipe("localization/openimages-gmp"))) == {
        "lr",
        "weight_decay",
    }
    assert search_space(["lr=1e-3..1e-1:log", "batch=8..64"]) == {
        "lr": (1e-3, 0.1, True),
        "batch": (8, 64, False),
    }
    drawn = with_values(CONFIG, {"lr": 0.5, "weight_decay": 0.1, "cutout": 0.2})
    assert (drawn.train.lr, drawn.train.weight_decay, drawn.train.select) == (0.5, 0.1, "boxes")
    assert isinstance(drawn.augment, PlainCropConfig) and drawn.augment.cutout == 0.2


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("lr", r"KEY=LOW\.\.HIGH:log"),
        ("lr=1..2:lin", r"KEY=LOW\.\.HIGH"),
        ("lrr=1..2", "'lrr'.*'lr'"),
        ("lr=2..1", r"\b2\.\.1\b"),
        ("lr=0..1:log", r"\b0\b"),
        ("lr=a..1", r"\blr=a\.\.1\b"),
        ("workers=1..3", "'workers'"),  # does not change the result
        ("seed=0..9", r"\bseed=0\.\.9\b"),  # another seed holds out other validation images
    ],
)
def test_mistakes_in_a_range_are_named(text: str, cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        parse_range(text)
    assert "seed" not in searchable()


def test_draws_depend_on_seed_and_number_alone() -> None:
    first = [draw(SPACE, 0, number) for number in range(60)]
    assert first[:4] == [draw(SPACE, 0, number) for number in range(4)]
    assert draw(SPACE, 1, 0) != first[0]
    rates = np.log10([drawn["lr"] for drawn in first])
    assert rates.min() >= -5 and rates.max() <= 0
    assert abs(rates.mean() + 2.5) < 0.6  # uniform in the logarithm
    sizes = np.array([drawn["cutout"] for drawn in first])
    assert sizes.min() >= 0 and sizes.max() <= 0.5 and abs(sizes.mean() - 0.25) < 0.06
    whole = {draw({"batch": SearchRange(2, 4)}, 0, number)["batch"] for number in range(60)}
    assert whole == {2, 3, 4}


def pretend(
    data: Dataset, folder: Path, config: RunConfig, *rest: Any, **options: Any
) -> FitReport:
    """A training that takes no time: its value on validation is the largest for a rate of 1e-2."""
    assert "test" not in data.splits  # no trial may see it
    rate = config.train.lr
    if rate > 0.3:
        raise Diverged("the loss is nan in epoch 1, step 2, with 3.png; no checkpoint was made")
    model = narrow_resnet("gap")
    model.class_names = ["a", "b", "c"]
    save_model(model, folder)
    (folder / CHECKPOINT).write_text("")
    report = FitReport(
        pool="gap",
        backbone="resnet",
        epoch=1,
        val={"boxes": 90 - abs(np.log10(rate) + 2), "accuracy": 50.0},
        test=None,
        seconds={},
        settings={},
        data="",
    )
    report.write(folder)
    return report


def test_the_best_is_kept_and_tested_once_and_failures_are_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = []
    monkeypatch.setattr(module, "fit", pretend)
    monkeypatch.setattr(
        module,
        "evaluate_on_test",
        lambda *given: tested.append(given) or {"boxes": 7.0, "images": 6},
    )
    report = sweep(split_rectangles(24, test=True), tmp_path, CONFIG, SPACE, 12)
    head, *rows = csv.reader((tmp_path / "trials.csv").open(newline=""))
    assert head[:5] == ["trial", "state", "value", "lr", "cutout"] and len(rows) == 12
    failed = [row for row in rows if float(row[3]) > 0.3]
    assert failed and all(
        row[1] == "failed" and row[2] == "" and "epoch 1, step 2" in row[-1] for row in failed
    )
    best = min(
        (row for row in rows if row not in failed), key=lambda row: abs(np.log10(float(row[3])) + 2)
    )
    assert report is not None and report.trial == int(best[0]) and report.trials == {
        "done": 12 - len(failed), "failed": len(failed), "in work": 0
    }  # fmt: skip
    assert len(tested) == 1 and report.test == {"boxes": 7.0, "images": 6}
    assert load(tmp_path / "best").class_names == ["a", "b", "c"]
    assert json.loads((tmp_path / "best" / "results.json").read_text()) == report.to_json()
    assert not list(
        tmp_path.rglob(CHECKPOINT)
    )  # of finished trials nothing is needed but the best one's weights
    assert len(list((tmp_path / "trials").rglob("model.safetensors"))) == 1

    assert sweep(split_rectangles(24, test=True), tmp_path, CONFIG, SPACE, 12) == report
    assert len(tested) == 1
    with pytest.raises(ValueError, match=r"\bsearch\.cutout\b.*\b0\.5\b.*\b0\.2\b"):
        sweep(
            split_rectangles(24, test=True),
            tmp_path,
            CONFIG,
            {**SPACE, "cutout": SearchRange(0.0, 0.2)},
            12,
        )
    with pytest.raises(ValueError, match=r"\btrials\b.*\b0\b"):
        sweep(split_rectangles(24), tmp_path, CONFIG, SPACE, 0)


def test_when_all_trials_fail_the_first_reason_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "fit", pretend)
    with pytest.raises(Stopped, match=r"\b2 trials\b.*epoch 1, step 2"):
        sweep(split_rectangles(24), tmp_path, CONFIG, {"lr": SearchRange(0.5, 1.0)}, 2)


SCRIPT = """
import sys, time
from pathlib import Path
from cenote.train import sweep as module
from cenote.train.checkpoint import NAME
from tests.synthetic import split_rectangles
from tests.train.test_sweep import CONFIG, LOWER, pretend

def training(data, folder, config, cache, resume, object_map):
    with open(sys.argv[1] + ".log", "a") as log:
        log.write(f"{folder.name} {config.train.lr:.6g} {int(resume)}\\n")
    if folder.name == sys.argv[2]:  # until it is killed
        (folder / NAME).write_text("")
        time.sleep(600)
    time.sleep(0.05)
    return pretend(data, folder, config)

module.fit = training
module.sweep(split_rectangles(24), Path(sys.argv[1]), CONFIG, LOWER, 6)
"""


def start(folder: Path, hang: str = "") -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, str(folder), hang]
    return subprocess.Popen(command, env=environment, cwd=root, stderr=subprocess.PIPE, text=True)


def log(folder: Path) -> list[list[str]]:
    path = Path(f"{folder}.log")
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def rows(folder: Path) -> list[list[str]]:
    _, *found = csv.reader((folder / "trials.csv").open(newline=""))
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kill_9_and_two_processes_at_once(tmp_path: Path) -> None:
    """One process is killed in its third trial while no other runs; two others end the search together."""
    folder = tmp_path / "search"
    process = start(folder, hang="0002")
    while len(log(folder)) < 3 or not (folder / "trials" / "0002" / CHECKPOINT).exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for other in [start(folder), start(folder)]:
        _, errors = other.communicate()
        assert other.returncode == 0, errors[-2000:]
    assert_as_if_uninterrupted(folder)


class Killed(BaseException):
    """Ends a search in the middle of a trial, without a process that can be killed."""


def test_an_interrupted_trial_is_repeated_by_one_of_two_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quick version of the test above: an exception ends the third trial, two threads end the search."""
    folder, writing = tmp_path / "search", threading.Lock()

    def training(
        data: Dataset, out: Path, config: RunConfig, cache: Any, resume: bool, object_map: bool
    ) -> FitReport:
        with writing, open(f"{folder}.log", "a") as file:
            file.write(f"{out.name} {config.train.lr:.6g} {int(resume)}\n")
        if out.name == "0002" and not resume:
            (out / CHECKPOINT).write_text("")
            raise Killed
        return pretend(data, out, config)

    def search() -> SweepReport | None:
        return sweep(split_rectangles(24), folder, CONFIG, LOWER, 6)

    monkeypatch.setattr(module, "fit", training)
    with pytest.raises(Killed):
        search()
    with ThreadPoolExecutor(2) as threads:
        for future in [threads.submit(search), threads.submit(search)]:
            future.result()
    assert_as_if_uninterrupted(folder)


def assert_as_if_uninterrupted(folder: Path) -> None:
    """Six trials, of which the third was run twice with the same values."""
    ran = log(folder)
    assert sorted(name for name, *_ in ran) == [
        "0000",
        "0001",
        "0002",
        "0002",
        "0003",
        "0004",
        "0005",
    ]
    (_, rate, resumed), (_, rate_again, resumed_again) = (line for line in ran if line[0] == "0002")
    assert (resumed, resumed_again) == ("0", "1") and rate == rate_again
    assert [row[:2] for row in rows(folder)] == [[str(n), "done"] for n in range(1, 7)]
    assert (folder / "best" / "results.json").exists()
    for number, row in enumerate(rows(folder)):
        assert row[3:5] == [f"{value:.6g}" for value in draw(LOWER, 0, number).values()]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ["--backbone", "resnet_micro", "--pool", "gap", "--scratch", "--size", "32"]
    options = [*model, "--epochs", "1", "--batch", "16"]
    command = [
        "sweep",
        "world/tiny",
        "-o",
        str(tmp_path / "s"),
        "--trials",
        "2",
        "--select",
        "boxes",
        *options,
    ]
    assert main([*command, "--search", "lr=1e-4..1e-2:log", "cutout=0..0.5"]) == 0
    printed = capsys.readouterr()  # the one test of the sentences of this command
    assert "trial 1 of 2: lr " in printed.err
    assert "best: trial" in printed.out and "on 18 test images: MaxBoxAccV2 " in printed.out
    report = json.loads((tmp_path / "s" / "best" / "results.json").read_text())
    assert report["settings"]["select"] == "boxes" and "thresholds" in report["test"]
    assert report["settings"] == {**report["settings"], "lr": report["drawn"]["lr"]}
    assert load(tmp_path / "s" / "best").backbone.preprocessing.size == 32
    assert main([*command, "--search", "lr=1..2"]) == 2
    assert "search" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        (["--lr", "0.1"], r"\blr\b.*\b1e-05\.\.1\b"),
        (["--cutout", "0.2"], r"\bcutout\b"),
        (["--settings", "weight_decay=0.1"], r"\bweight_decay\b"),
        (["--batch", "8", "--search", "batch=4..16"], r"\bbatch\b.*\b4\.\.16\b"),
    ],
)
def test_a_value_that_would_be_forgotten_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], cause: str
) -> None:
    assert main(["sweep", "world/tiny", "-o", str(tmp_path / "s"), *given]) == 2
    assert re.search(cause, capsys.readouterr().err) and not (tmp_path / "s").exists()
    refuse_fixed({"lr": RANGES["lr"]}, ["cutout", "batch"])


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        (["--weights", "nowhere.pth"], "nowhere.pth"),
        (
            ["--backbone", "vit_tiny_patch16_224", "--scratch", "--stride", "2"],
            "vit_tiny_patch16_224",
        ),
        (
            ["--backbone", "vit_tiny_patch16_224", "--scratch", "--fpn", "P4"],
            "vit_tiny_patch16_224",
        ),
    ],
)
@pytest.mark.parametrize("command", ["fit", "sweep"])
def test_what_a_backbone_cannot_do_is_refused_before_the_images_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, given: list[str], cause: str
) -> None:
    """The folder has no images, and that is not what the message is about."""
    assert main([command, str(tmp_path), "-o", str(tmp_path / "run"), *given]) == 2
    message = capsys.readouterr().err
    assert cause in message and str(tmp_path) not in message
