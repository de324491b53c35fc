"""A tournament runs the backbone once, ends the same whether or not it was killed, and reports ties as ties."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

import cenote
from cenote.backbones import Backbone, create_backbone
from cenote.data import open_dataset
from cenote.evaluate.localize import localize
from cenote.metrics import max_box_acc, prepare_maps
from cenote.models.frozen import FrozenBackbone, PooledHead
from cenote.pooling import list_pools
from cenote.train.config import OptimizationConfig
from cenote.train.tournament.candidates import (
    Entry,
    ablation_entries,
    able,
    gamma_entries,
    pool_entries,
)
from cenote.train.tournament.ranking import Standing, noise, recommendation, ties
from cenote.train.tournament.run import Game, tournament
from cenote.train.tournament.training import heats
from tests.synthetic import squares

from .running import quiet

ROOT = Path(__file__).parents[2]
QUICK = OptimizationConfig(epochs=2, batch=16, warmup=0.5, checkpoint_minutes=0.0)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a ViT of 64 channels with a CLS token; random, but always the same."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "test_vit.safetensors"
    save_file(timm.create_model("test_vit").state_dict(), path)
    return path


def game(weights: Path, *pools: str, **options: Any) -> Game:
    return Game(**{"backbone": "test_vit", "weights": weights, "pools": pools, "seeds": 2, "rates": (1e-3, 1e-2),
                   "settings": QUICK, **options})  # fmt: skip


def numbers(folder: Path) -> dict[str, Any]:
    """All of results.json but the times."""
    report: dict[str, Any] = json.loads((folder / "results.json").read_text())
    del report["seconds"]
    for row in report["standings"]:
        row.pop("ms", None), row.pop("backbone_ms", None)
    return report


def test_the_report_and_the_model(tmp_path: Path, weights: Path) -> None:
    found = tournament(
        open_dataset("world/tiny"),
        tmp_path,
        game(weights, "gap", "simpool", "slot", "cls"),
        say=quiet,
    )
    report = json.loads((tmp_path / "results.json").read_text())
    assert report == json.loads(json.dumps(found.report))
    rows = {row["name"]: row for row in report["standings"]}
    assert set(rows) == {"gap", "simpool", "slot", "cls", "simpool [CLS; patches]"}
    means = [row["mean"] for row in report["standings"]]
    assert means == sorted(means, reverse=True)
    for row in rows.values():
        assert len(row["accuracy"]) == len(row["val"]) == len(row["boxes"]) == 2
        assert row["mean"] == pytest.approx(np.mean(row["accuracy"]))
        assert row["deviation"] == pytest.approx(np.std(row["accuracy"], ddof=1))
        assert row["lr"] in (1e-3, 1e-2)
    assert {name: row["map"] for name, row in rows.items()} == {
        "gap": "cam", "simpool": "pool", "slot": "pool", "cls": "cls", "simpool [CLS; patches]": "pool",
    }  # fmt: skip
    assert rows["simpool"]["parameters"] == 2 * 64 * 64 + 2 * 64 and rows["gap"]["parameters"] == 0
    assert rows["cls"]["boxes"][0] == rows["cls"]["boxes"][1]  # nothing of its map was trained
    assert report["judged"] == "test" and report["images"] == 18
    assert list(report["groups"]) == [
        "simple",
        "SimPool",
        "iterative",
        "CLS",
    ]  # as they entered, not as they ended
    assert {name for name, (_, maps) in found.maps.items() if maps.shape == (6, 10, 10)} == set(
        rows
    )
    model = cenote.load(tmp_path)
    assert model.class_names == open_dataset("world/tiny").classes
    assert model.config["pool"] == rows[report["recommended"]]["pool"]
    assert not list(tmp_path.rglob("checkpoint.pt"))


def test_the_saved_model_is_as_right_as_the_report_says(tmp_path: Path, weights: Path) -> None:
    from cenote.evaluate.classify import classify

    data = open_dataset("world/tiny")
    report = tournament(data, tmp_path, game(weights, "gap", "max"), say=quiet).report
    row = next(row for row in report["standings"] if row["name"] == report["recommended"])
    # Cached features are half floats, which may turn the answer for one of the 18 images.
    accuracy = classify(cenote.load(tmp_path), data.split("test"))["accuracy"]
    assert accuracy == pytest.approx(row["accuracy"][0], abs=100 / 18 + 1e-6)


def test_the_backbone_runs_once(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = 0
    forward = Backbone.forward

    def counted(self: Backbone, images: Tensor) -> Any:
        nonlocal seen
        seen += len(images) if images.any() else 0  # zeros only ask for the size of the grid
        return forward(self, images)

    monkeypatch.setattr(Backbone, "forward", counted)
    data = open_dataset("world/tiny")
    tournament(data, tmp_path / "one", game(weights, "gap", "simpool", "gem"), say=quiet)
    assert seen == 96 + 18  # all images as they are classified, those with boxes also uncropped
    tournament(data, tmp_path / "two", game(weights, "max", "se"), say=quiet)
    assert seen == 96 + 18


def test_boxes_are_those_of_the_metric(tmp_path: Path, weights: Path) -> None:
    data = open_dataset("world/tiny")
    report = tournament(data, tmp_path, game(weights, "simpool"), say=quiet).report
    model, test = cenote.load(tmp_path), data.split("test")
    whole = model.backbone.preprocessing.whole()
    with torch.inference_mode():
        maps = torch.cat(
            [model.attend(whole(test.image(i))[None], "pool").mean(1) for i in range(len(test))]
        )
    boxes = [[box[:4] for box in record.boxes] for record in test]
    wanted = max_box_acc(
        prepare_maps(maps, 160).numpy(), boxes, [test.image(i).size for i in range(len(test))]
    )
    # Cached features are half floats, which may decide for or against one image.
    assert report["standings"][0]["boxes"][0] == pytest.approx(100 * wanted.score, abs=100 / 18)
    fixed = localize(model, test, resamples=0, each=0).report["oracle"]["centred_box"]
    assert report["centred_box"] == pytest.approx(fixed["score"])


CODE = """
import sys
from tests.train.test_tournament import *
torch.set_num_threads(int(sys.argv[3]))  # as many as in the test
tournament(squares(36), Path(sys.argv[1]), long(Path(sys.argv[2])),
           resume="resume" in sys.argv, say=lambda s: print(s, flush=True))
"""


def long(weights: Path) -> Game:
    return game(weights, "gap", "simpool", settings=replace(QUICK, epochs=6))


class Killed(BaseException):
    """Ends a tournament at one of its messages, without a process that can be killed."""


def stopped_at(line: str, folder: Path, weights: Path, resume: bool = False) -> None:
    def stop(message: str) -> None:
        if message.startswith(line):
            raise Killed

    with pytest.raises(Killed):
        tournament(squares(36), folder, long(weights), resume=resume, say=stop)


def killed_at(line: str, folder: Path, weights: Path, resume: bool = False) -> None:
    threads = str(torch.get_num_threads())
    command = [
        sys.executable,
        "-c",
        CODE,
        str(folder),
        str(weights),
        threads,
        *(["resume"] if resume else []),
    ]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert any(message.startswith(line) for message in process.stdout), f"it ended before '{line}'"
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("end", [stopped_at, pytest.param(killed_at, marks=pytest.mark.slow)])
def test_killed_and_resumed_it_ends_the_same(
    end: Callable[..., None], tmp_path: Path, weights: Path
) -> None:
    """Ended while learning rates are chosen and again within the second seed."""
    tournament(squares(36), tmp_path / "whole", long(weights), say=quiet)
    folder, messages = tmp_path / "killed", list[str]()
    end("epoch 1/2", folder, weights)
    assert (folder / "rates" / "heat-1" / "checkpoint.pt").is_file()
    end("seed 2 of 2", folder, weights, resume=True)
    assert (folder / "seed-0" / "heat-1" / "results.json").is_file() and not (
        folder / "results.json"
    ).exists()
    tournament(squares(36), folder, long(weights), resume=True, say=messages.append)
    assert (
        len([line for line in messages if line.startswith("epoch")]) <= 6
    )  # finished heats are not repeated
    assert numbers(folder) == numbers(tmp_path / "whole")
    one, other = (tmp_path / name / "model.safetensors" for name in ("killed", "whole"))
    assert one.read_bytes() == other.read_bytes()


def test_a_resumed_tournament_is_the_one_that_was_begun(tmp_path: Path, weights: Path) -> None:
    data, first = squares(), game(weights, "gap", "max", seeds=1)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "nothing"))):
        tournament(data, tmp_path / "nothing", first, resume=True, say=quiet)
    tournament(data, tmp_path, first, say=quiet)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        tournament(data, tmp_path, first, say=quiet)
    for other, cause in [
        (replace(first, settings=replace(QUICK, batch=8)), r"\bbatch\b.*\b16\b.*\b8\b"),
        (replace(first, rates=(1e-3,)), r"\brates\b"),
        (replace(first, pools=("gap",)), r"\bcontenders\b"),
    ]:
        with pytest.raises(ValueError, match=cause):
            tournament(data, tmp_path, other, resume=True, say=quiet)
    before = numbers(tmp_path)
    after = tournament(data, tmp_path, replace(first, seeds=2), resume=True, say=quiet).report
    for row in after["standings"]:  # a seed more is added to what was played
        old = next(one for one in before["standings"] if one["name"] == row["name"])
        assert len(row["accuracy"]) == 2 and row["accuracy"][:1] == old["accuracy"]


def test_one_that_fails_does_not_stop_the_others(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Entry.top

    def spoiled(self: Entry, frozen: FrozenBackbone, classes: int) -> PooledHead:
        top = make(self, frozen, classes)
        if self.name == "max":
            torch.nn.init.constant_(top.head.linear.weight, float("nan"))
        return top

    monkeypatch.setattr(Entry, "top", spoiled)
    report = tournament(squares(), tmp_path, game(weights, "gap", "max"), say=quiet).report
    gap, failed = report["standings"]
    assert gap["name"] == "gap" and len(gap["accuracy"]) == 2
    assert failed["mean"] is None and "epoch 1, step 1" in failed["failed"]
    alone = tournament(squares(), tmp_path / "alone", game(weights, "max"), say=quiet).report
    assert alone["recommended"] is None and alone["recommendation"]


def test_data_that_cannot_be_judged(tmp_path: Path, weights: Path) -> None:
    messages: list[str] = []
    broken = tournament(
        squares(36, bad=(0, 3)), tmp_path / "a", game(weights, "gap"), say=messages.append
    )
    assert broken.report["judged"] == "val" and broken.report["box_images"] == 0
    assert all(any(re.search(rf"\b{i}\.png\b", line) for line in messages) for i in (0, 3))
    one = squares(24)
    with pytest.raises(ValueError, match=r"\bsquares\b"):
        tournament(
            one.select(np.flatnonzero(one.labels == 0)),
            tmp_path / "b",
            game(weights, "gap"),
            say=quiet,
        )
    few = one.select(
        [i for i in range(24) if one.labels[i] != 2 or i == 2]
    )  # one image of the last class
    assert tournament(few, tmp_path / "c", game(weights, "gap"), say=quiet).report["classes"] == 3


@pytest.mark.parametrize(
    ("pools", "cause"), [(("simpol",), "'simpol'.*'simpool'"), (("gap", "gap"), r"\bgap\b")]
)
def test_unknown_and_repeated_pools_are_refused(
    tmp_path: Path, weights: Path, pools: tuple[str, ...], cause: str
) -> None:
    with pytest.raises(ValueError, match=cause):
        tournament(squares(), tmp_path / "run", game(weights, *pools), say=quiet)
    assert not (tmp_path / "run").exists()


def test_the_entries(weights: Path) -> None:
    frozen = FrozenBackbone(create_backbone("test_vit", weights=weights))
    everyone = pool_entries(frozen)
    assert [e.name for e in everyone[:-2]] == list_pools() and everyone[-2].name == "cls"
    plain = FrozenBackbone(create_backbone("test_resnet"))
    assert [e.name for e in pool_entries(plain)] == list_pools()
    with pytest.raises(ValueError, match="'test_resnet'"):
        pool_entries(plain, ["cls"])
    messages: list[str] = []
    seven = Entry("seven heads", "simpool", options={"heads": 7})
    assert able([*everyone, seven], frozen, (10, 10), False, messages.append) == everyone
    assert len(messages) == 1 and "seven heads" in messages[0] and "64" in messages[0]
    assert [e.name for e in gamma_entries((2, 1))][:3] == ["no gamma", "gamma 1", "gamma 2"]


DESIGN = (
    56.6, 55.6, 56.8, 55.9, 56.5, 56.4, 56.3, 56.6, 56.5, 56.3, 56.5, 56.4, 56.5, 55.9, 56.4, 57.1, 55.0,
)  # fmt: skip
LAYERS = (57.0, 56.6, 56.5, 56.4, 55.6, 56.3, 56.0, 56.2, 56.6, 56.4, 56.2, 56.2, 54.4, 54.5)


def test_the_ablation_is_the_papers(tmp_path: Path, weights: Path) -> None:
    """Every row of S Table 10 trains; those whose size the table implies have it."""
    frozen = FrozenBackbone(create_backbone("test_vit", weights=weights))
    assert sorted(e.paper or 0 for e in ablation_entries(frozen)) == sorted([*DESIGN, *LAYERS])
    played = game(
        weights, kind="ablation", seeds=1, rates=(1e-2,), settings=replace(QUICK, epochs=1)
    )
    rows = {
        row["name"]: row
        for row in tournament(squares(), tmp_path, played, say=quiet).report["standings"]
    }
    assert not [row["failed"] for row in rows.values() if row["failed"]]
    maps = {
        name: (row["parameters"] - row["parameters"] % 4096) // 4096 for name, row in rows.items()
    }
    assert (
        maps["SimPool"] == 2
        and maps["W_Q = W_K"] == 1
        and maps["3 layers"] == 6
        and maps["3 iterations"] == 2
    )
    assert maps["linear qkv, LN qkv"] == 3 and maps["linear -, LN -"] == maps["GAP"] == 0
    extra = rows["k = 5, concat"]["trained"] - rows["k = 5, max"]["trained"]
    assert extra == 5 * 64 * 64 + 64  # the projection of the five vectors


def test_heats_hold_what_has_room() -> None:
    entries = [
        (Entry(name, "gap"), [1.0] * rates)
        for name, rates in (("a", 1), ("b", 2), ("c", 1), ("d", 1))
    ]
    found = [
        [e.name for e, _ in heat]
        for heat in heats(entries, {"a": 4, "b": 3, "c": 99, "d": 1}, room=10)
    ]
    assert found == [["a", "b"], ["c"], ["d"]]


def standing(name: str, *accuracy: float, tokens: str = "patches") -> Standing:
    pool = "cls" if tokens == "cls" else "gap"
    return Standing(Entry(name, pool, tokens, group="g"), 1e-3, list(accuracy), list(accuracy))


SIZES = {"small": 0, "large": 100, "cls": 0, "other": 50}


def test_noise_is_two_standard_errors_of_a_difference() -> None:
    many = [standing("a", 49, 51), standing("b", 48, 52)]
    deviation = ((2 + 8) / 2) ** 0.5
    assert noise(many, 10**6) == pytest.approx(2 * deviation * (1 / 2 + 1 / 2) ** 0.5)
    assert noise(many, 5) == 20  # one of five images
    draw = np.random.default_rng(0).normal(50, 1, (2000, 2, 3))
    apart = [
        abs(a.mean() - b.mean()) > noise([standing("a", *a), standing("b", *b)], 10**6)
        for a, b in draw
    ]
    assert (
        np.mean(apart) < 0.15
    )  # equals are seldom told apart, though only six numbers say how much they scatter


@pytest.mark.parametrize(
    ("standings", "first", "numbers"),
    [
        (
            [standing("large", 80, 80.2), standing("small", 70, 70.2)],
            "large",
            ["80.1", "0.1", "2", "10.0"],
        ),
        (
            [standing("large", 80, 82), standing("small", 79, 81)],
            "small",
            ["80.0", "1.4", "81.0", "1.4", "2"],
        ),
        ([standing("small", 80, 82), standing("large", 79, 81)], "small", ["81.0", "1.4"]),
        ([standing("large", 80), standing("small", 70)], "large", ["80.0"]),
        ([standing("cls", 76, 76.2, tokens="cls"), standing("large", 52, 52.2)], "cls", ["76.1"]),
        ([standing("large", 52, 52.2)], "large", ["52.1"]),
    ],
)
def test_the_recommendation(standings: list[Standing], first: str, numbers: list[str]) -> None:
    """The one to take is named before all others, with its numbers."""
    sentence = recommendation(standings, SIZES, 1000)
    named = [name for name in re.findall(r"\w+", sentence) if name in ("small", "large", "cls")]
    assert named[0] == first and sentence.endswith(".")
    assert re.findall(r"\d+(?:\.\d+)?", sentence)[: len(numbers)] == numbers


def test_without_a_result_nobody_is_recommended() -> None:
    assert "large" not in recommendation([standing("large")], SIZES, 1000)


def test_cls_is_explained_only_where_it_wins_by_far() -> None:
    def sentence(cls: float) -> str:
        both = [standing("cls", cls, cls + 0.2, tokens="cls"), standing("large", 52, 52.2)]
        return recommendation(both, SIZES, 1000)

    assert "CLS" in sentence(60) and "CLS" not in sentence(54)


def test_ties_are_with_the_best() -> None:
    found = ties([standing("b", 69, 71), standing("a", 70, 72), standing("c", 10, 12)], 1000)
    assert [s.name for s in found] == ["a", "b"]
