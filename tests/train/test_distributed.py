"""Two processes under torchrun train what one process trains, and count every image once."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file

from .distributed_cases import CASES, train

ROOT = Path(__file__).parents[2]
RTOL, ATOL = (
    1e-3,
    1e-5,
)  # the halves of a batch are summed in another order; training moves weights by 1e-3 and more


pytestmark = pytest.mark.timeout(600)  # the pair runs all cases before the first test


class Pair(NamedTuple):
    folder: Path  # of what the two processes wrote, one folder per case
    printed: str


def run_pair(folder: Path, *cases: str) -> subprocess.CompletedProcess[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, "-m", "tests.train.distributed_cases", str(folder), *cases]
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "CENOTE_CACHE": str(folder / "cache"),
    }
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=500)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Run all cases in one pair of processes, as a user starts them."""
    folder = tmp_path_factory.mktemp("two")
    torch.manual_seed(0)
    torch.save(timm.create_model("test_vit").state_dict(), folder / "test_vit.pt")
    write_photos(folder / "photos")
    process = run_pair(folder, *(name for name in CASES if name != "failing_extraction"))
    assert process.returncode == 0, process.stderr[-4000:]
    return Pair(folder, process.stdout)


def write_photos(folder: Path) -> None:
    """Write nine photographs and two damaged files."""
    folder.mkdir()
    for i in range(9):
        Image.new("RGB", (32, 32), (20 * i, 0, 0)).save(folder / f"{i}.png")
    for name in ("4-damaged.png", "damaged.png"):
        (folder / name).write_bytes(name.encode())


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def assert_same_weights(alone: Path, together: Path, file: str = "model.safetensors") -> None:
    one, two = load_file(alone / file), load_file(together / file)
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(
            two[name], value, rtol=RTOL, atol=ATOL, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("name", ["supervised", "supervised_in_parts"])
def test_two_processes_are_as_good_as_one(name: str, pair: Pair, tmp_path: Path) -> None:
    alone, together = train(name, tmp_path), pair.folder / name
    assert_same_weights(alone, together)
    for one, two in zip(metrics(alone), metrics(together), strict=True):
        one, two = one["results"]["model"], two["results"]["model"]
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-4)
        right = two["accuracy"] / 100 * 7
        assert right == pytest.approx(round(right), abs=1e-6)  # every image is counted once
        assert one["accuracy"] == pytest.approx(
            two["accuracy"], abs=100 / 7 + 1e-6
        )  # rounding may turn one answer


def test_dino_of_two_processes_is_that_of_one(pair: Pair, tmp_path: Path) -> None:
    """The centre and the gradients are those of the whole batch."""
    assert_same_weights(train("dino", tmp_path), pair.folder / "dino")


def test_metric_learning_of_two_processes_is_that_of_one(pair: Pair, tmp_path: Path) -> None:
    alone, together = train("metric", tmp_path), pair.folder / "metric"
    assert_same_weights(alone, together)
    images = [
        json.loads((folder / "results.json").read_text())["test"]["images"]
        for folder in (alone, together)
    ]
    assert images[0] == images[1]


def test_two_processes_share_short_epochs(pair: Pair, tmp_path: Path) -> None:
    alone, together = train("metric_short_epochs", tmp_path), pair.folder / "metric_short_epochs"
    one, two = (metrics(folder)[0]["results"]["metric"]["loss"] for folder in (alone, together))
    assert one == pytest.approx(two, rel=1e-4)


def test_two_processes_end_together(pair: Pair) -> None:
    assert len(metrics(pair.folder / "metric_early_end")) == 4


def test_an_image_text_model_of_two_processes_is_that_of_one(pair: Pair, tmp_path: Path) -> None:
    """Their images and texts are compared with each other's."""
    alone = train("clip", tmp_path)
    for file in ("model.safetensors", "text.safetensors"):
        assert_same_weights(alone, pair.folder / "clip", file)


def test_localization_of_two_processes_counts_every_image_once(pair: Pair, tmp_path: Path) -> None:
    one, two = (
        json.loads((out / "scores.json").read_text())
        for out in (train("located", tmp_path), pair.folder / "located")
    )
    (boxes, pixels), (other_boxes, other_pixels) = one, two
    # Rounding may move one of seven boxes across one of three IoU thresholds.
    assert other_boxes == pytest.approx(boxes, abs=100 / 7 / 3 + 1e-6)
    assert other_pixels == pytest.approx(pixels, rel=1e-3)


def test_a_tournament_of_two_processes_judges_every_image_once(pair: Pair) -> None:
    folder = pair.folder / "tournament"
    report = json.loads((folder / "results.json").read_text())
    assert [row["failed"] for row in report["standings"]] == [None, None]
    for row in report["standings"]:
        right = row["accuracy"][0] / 100 * report["images"]
        assert right == pytest.approx(round(right), abs=1e-6) and row["boxes"]
    assert (folder / "model.safetensors").is_file()
    assert pair.printed.count("results.json") == 1  # one of them speaks


def test_two_processes_extract_each_image_once(pair: Pair, tmp_path: Path) -> None:
    """In a cache that they share; with caches of their own each extracts all images."""
    write_photos(tmp_path / "photos")
    folders = train("extraction", tmp_path), pair.folder / "extraction"
    alone, first, second, *own = (
        json.loads((folder / f"{name}-{rank}.json").read_text())
        for folder, name, rank in (
            (folders[0], "shared", 0),
            *((folders[1], name, rank) for name in ("shared", "own") for rank in (0, 1)),
        )
    )
    assert alone["images"] == first["images"] + second["images"] == 9
    assert abs(first["images"] - second["images"]) <= 2  # six files or five, damaged ones included
    assert [share["images"] for share in own] == [9, 9]
    for share in (alone, first, second, *own):
        assert share["rows"] == 9
        assert [message.split(":")[0].rpartition("/")[2] for message in share["bad"]] == [
            "4-damaged.png",
            "damaged.png",
        ]


def test_a_process_that_fails_ends_the_other(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos")
    process = run_pair(tmp_path, "failing_extraction")
    assert process.returncode != 0 and "this process fails" in process.stderr
    assert not list(tmp_path.glob("failing_extraction/*.json"))
