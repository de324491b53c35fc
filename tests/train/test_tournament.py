"""A tournament runs the backbone once, ends the same whether or not it was killed, and reports ties as ties."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import cenote
from cenote.backbones import Backbone, create_backbone
from cenote.data import open_dataset
from cenote.data.splits import split
from cenote.evaluate.wsol import localize
from cenote.metrics import max_box_acc, prepare_maps
from cenote.models.class_map import ForwardPass
from cenote.models.frozen import FrozenBackbone, PooledHead
from cenote.models.own import NoOwnPool, create_own_pool
from cenote.pooling import list_pools
from cenote.report.tournament import CandidateResult, TournamentReport, explanations
from cenote.train.config import OptimizationConfig
from cenote.train.state import TrainState
from cenote.train.tasks.probe import LearningRates
from cenote.train.tournament.candidates import (
    DEFAULT_POOLS,
    Candidate,
    ablation_candidates,
    gamma_candidates,
    pool_candidates,
    usable_candidates,
)
from cenote.train.tournament.load import load_candidates
from cenote.train.tournament.maps import MapImages, MapScore
from cenote.train.tournament.progress import RemainingTime
from cenote.train.tournament.ranking import compare, conclude, recommendation, ties
from cenote.train.tournament.run import TournamentConfig, run_tournament
from cenote.train.tournament.training import Trial, read_pass, select_rates, split_into_passes
from tests.synthetic import squares

ROOT = Path(__file__).parents[2]
SIMPOOL = "simpool (gamma 1.25)"  # of a transformer
QUICK = OptimizationConfig(epochs=2, batch=16, warmup=0.5, checkpoint_minutes=0.0)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a ViT of 64 channels with a CLS token; random, but always the same."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "test_vit.safetensors"
    save_file(timm.create_model("test_vit").state_dict(), path)
    return path


def config(weights: Path, *pools: str, **options: Any) -> TournamentConfig:
    options = {"seeds": 2, "rates": (1e-3, 1e-2), "settings": QUICK, **options}
    return TournamentConfig("test_vit", weights, pools=pools, **options)


def numbers(folder: Path) -> dict[str, Any]:
    """All of results.json but the times."""
    report: dict[str, Any] = json.loads((folder / "results.json").read_text())
    del report["seconds"]
    for row in report["standings"]:
        row.pop("ms", None), row.pop("backbone_ms", None)
    return report


def test_the_report_and_the_model(tmp_path: Path, weights: Path) -> None:
    found = run_tournament(
        open_dataset("world/tiny"), tmp_path, config(weights, "gap", "simpool", "slot", "cls")
    )
    report = json.loads((tmp_path / "results.json").read_text())
    assert report == json.loads(json.dumps(found.report.to_json()))
    rows = {row["name"]: row for row in report["standings"]}
    assert set(rows) == {
        "gap",
        SIMPOOL,
        "slot",
        "cls",
        "ep [CLS; patches]",
        f"{SIMPOOL} [CLS; patches]",
    }
    means = [row["mean"] for row in report["standings"]]
    assert means == sorted(means, reverse=True)
    for row in rows.values():
        assert len(row["accuracy"]) == len(row["val"]) == len(row["boxes"]) == 2
        assert row["mean"] == pytest.approx(np.mean(row["accuracy"]))
        assert row["deviation"] == pytest.approx(np.std(row["accuracy"], ddof=1))
        assert row["lr"] in (1e-3, 1e-2)
    assert rows["gap"]["map"] == "cam" and rows["cls"]["map"] == "cls"
    assert rows["ep [CLS; patches]"]["map"] in ("pool", "cam")
    assert rows[SIMPOOL]["parameters"] == 2 * 64 * 64 + 2 * 64 and rows["gap"]["parameters"] == 0
    assert rows["gap"]["knn"] is not None and rows["cls"]["knn"] is not None
    assert rows[SIMPOOL]["knn"] is None and rows[SIMPOOL]["pool_lr_factor"] in (1.0, 0.1, 0.03)
    assert rows["gap"]["pool_lr_factor"] is None
    assert rows["cls"]["boxes"][0] == rows["cls"]["boxes"][1]  # nothing of its map was trained
    assert report["judged"] == "test" and report["images"] == 18
    assert list(report["groups"]) == [
        "simple",
        "SimPool",
        "iterative",
        "CLS",
    ]  # as they entered, not as they ended
    for name, (_, maps) in found.maps.items():
        side = rows[name]["map_size"] // 16  # positions
        assert maps.shape == (6, side, side)
    assert found.maps.keys() == rows.keys()
    model = cenote.load(tmp_path)
    assert model.class_names == open_dataset("world/tiny").classes
    assert model.config["pool"] == rows[report["recommended"]]["pool"]
    assert not list(tmp_path.rglob("checkpoint.pt"))
    seed, _ = read_pass(tmp_path / "seed-0" / "heat-1")
    for name, saved in seed.items():
        assert saved.outcomes is not None and saved.outcomes.shape == (18,)
        assert 100 * saved.outcomes.mean() == pytest.approx(rows[name]["accuracy"][0])
        assert saved.box_outcomes is not None
        assert 100 * saved.box_outcomes.mean() == pytest.approx(rows[name]["boxes"][0])


def test_the_saved_model_is_as_right_as_the_report_says(tmp_path: Path, weights: Path) -> None:
    from cenote.evaluate.classify import classify

    data = open_dataset("world/tiny")
    report = run_tournament(data, tmp_path, config(weights, "gap", "max")).report
    row = next(row for row in report.standings if row.name == report.recommended)
    # Cached features are half floats, which may turn the answer for one of the 18 images.
    accuracy = classify(cenote.load(tmp_path), data.split("test")).accuracy
    assert accuracy == pytest.approx(row.accuracy[0], abs=100 / 18 + 1e-6)


def test_the_backbone_runs_once(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = 0

    def counted(network: Backbone, images: Tensor) -> Any:
        nonlocal seen
        seen += len(images)
        return network(images)

    monkeypatch.setattr("cenote.predict.feature_cache.run_frozen", counted)
    stored = "cenote.train.tournament.run.store_object_map"
    monkeypatch.setattr(stored, lambda *arguments: None)
    data = open_dataset("world/tiny")
    run_tournament(data, tmp_path / "one", config(weights, "gap", "simpool", "gem"))
    boxed = len(data.split("val")) + len(data.split("test"))
    # All images as they are classified, those with boxes also uncropped, at two sizes.
    assert seen == 96 + 2 * boxed
    run_tournament(data, tmp_path / "two", config(weights, "max", "se"))
    assert seen == 96 + 2 * boxed


def test_kind_and_size_of_maps_are_chosen_on_validation(weights: Path) -> None:
    vit = create_backbone("test_vit", weights=weights)
    images = MapImages.select(split(open_dataset("world/tiny"), quiet=True), 400, vit)
    assert images.sizes == (160, 320) and len(images.val) == 12 and len(images.test) == 18

    def maps(good: tuple[str, int], kind: str, split: str, size: int) -> Tensor:
        """Boxes of the objects for one kind and size, and noise for the others."""
        dataset = images.dataset(split)
        values = torch.rand(len(dataset), 40, 40, generator=torch.manual_seed(0))
        if (kind, size) == good:
            for i, record in enumerate(dataset):
                x0, y0, x1, y1 = (round(40 * v / 64) for v in record.boxes[0][:4])
                values[i, y0:y1, x0:x1] += 9
        return values

    for good in (("pool", 160), ("pool", 320), ("cam", 160)):
        score, _ = images.score(["pool", "cam"], partial(maps, good))
        assert (score.map, score.map_size) == good
        assert score.boxes is not None and score.boxes > 50
        assert score.box_outcomes is not None and score.box_outcomes.shape == (18,)
    without_boxes = replace(images, val=images.val.select(images.photos, 0))
    noise = partial(maps, ("", 0))
    assert without_boxes.score(["pool", "cam"], noise)[0][:2] == ("pool", 320)
    assert without_boxes.score(["cam"], noise)[0][:2] == ("cam", 160)
    assert images.score([], noise) == (MapScore(), None)


def test_boxes_are_those_of_the_metric(tmp_path: Path, weights: Path) -> None:
    data = open_dataset("world/tiny")
    report = run_tournament(data, tmp_path, config(weights, "simpool")).report
    model, test = cenote.load(tmp_path), data.split("test")
    kind, size = report.standings[0].map, report.standings[0].map_size
    assert (
        kind == model.map_kinds()[0] and size == model.map_size and size in (160, 320)
    )  # that of training, or twice that
    whole = model.backbone.preprocessing.whole((size, size))
    images = [test.image(i) for i in range(len(test))]
    with torch.inference_mode():
        attended = ForwardPass(model, torch.stack([whole(image) for image in images]), kind)
        maps = attended.maps(torch.from_numpy(test.labels))
    boxes = [[box[:4] for box in record.boxes] for record in test]
    wanted = max_box_acc(prepare_maps(maps, 160).numpy(), boxes, [image.size for image in images])
    # Cached features are half floats, which may decide for or against one image.
    assert report.standings[0].boxes[0] == pytest.approx(100 * wanted.score, abs=100 / 18)
    evaluated = localize(model, test, resamples=0, cases=0)
    assert evaluated.size == size and evaluated.oracle is not None  # as `cenote evaluate` does
    boxes_of_report = evaluated.oracle["max_box_acc_v2"]["score"]
    assert report.standings[0].boxes[0] == pytest.approx(boxes_of_report, abs=200 / 18)
    small = localize(model, test, size=160, resamples=0, cases=0).oracle
    assert small is not None
    assert report.centred_box == pytest.approx(small["centred_box"]["score"])


CODE = """
import logging, sys
from tests.train.test_tournament import *
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
torch.set_num_threads(int(sys.argv[3]))  # as many as in the test
run_tournament(squares(36), Path(sys.argv[1]), long(Path(sys.argv[2])),
               resume="resume" in sys.argv)
"""


def long(weights: Path) -> TournamentConfig:
    return config(weights, "gap", "simpool", settings=replace(QUICK, epochs=6))


class Killed(BaseException):
    """Ends a tournament at a log message, without a process that can be killed."""


class KillAt(logging.Handler):
    def __init__(self, start: str) -> None:
        super().__init__()
        self.start = start

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(self.start):
            raise Killed


def stopped_at(line: str, folder: Path, weights: Path, resume: bool = False) -> None:
    logger, handler = logging.getLogger("cenote"), KillAt(line)
    logger.addHandler(handler)
    try:
        with pytest.raises(Killed):
            run_tournament(squares(36), folder, long(weights), resume=resume)
    finally:
        logger.removeHandler(handler)


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
    end: Callable[..., None], tmp_path: Path, weights: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ended while learning rates are chosen and again within the second seed."""
    run_tournament(squares(36), tmp_path / "whole", long(weights))
    folder = tmp_path / "killed"
    end("epoch 1/2", folder, weights)
    assert (folder / "rates" / "heat-1" / "checkpoint.pt").is_file()
    end("seed 2 of 2", folder, weights, resume=True)
    assert (folder / "seed-0" / "heat-1" / "results.json").is_file() and not (
        folder / "results.json"
    ).exists()
    caplog.clear()
    run_tournament(squares(36), folder, long(weights), resume=True)
    # Finished passes are not repeated.
    assert len([line for line in caplog.messages if line.startswith("epoch")]) <= 6
    assert numbers(folder) == numbers(tmp_path / "whole")
    one, other = (tmp_path / name / "model.safetensors" for name in ("killed", "whole"))
    assert one.read_bytes() == other.read_bytes()


def test_a_resumed_tournament_is_the_one_that_was_begun(tmp_path: Path, weights: Path) -> None:
    data, first = squares(), config(weights, "gap", "max", seeds=1)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "nothing"))):
        run_tournament(data, tmp_path / "nothing", first, resume=True)
    run_tournament(data, tmp_path, first)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        run_tournament(data, tmp_path, first)
    for other, cause in [
        (replace(first, settings=replace(QUICK, batch=8)), r"\bbatch\b.*\b16\b.*\b8\b"),
        (replace(first, rates=(1e-3,)), r"\brates\b"),
        (replace(first, pools=("gap",)), r"\bcontenders\b"),
    ]:
        with pytest.raises(ValueError, match=cause):
            run_tournament(data, tmp_path, other, resume=True)
    before = numbers(tmp_path)
    after = run_tournament(data, tmp_path, replace(first, seeds=2), resume=True).report
    for row in after.standings:  # one more seed is added to the old results
        old = next(one for one in before["standings"] if one["name"] == row.name)
        assert len(row.accuracy) == 2 and row.accuracy[:1] == old["accuracy"]


def test_one_that_fails_does_not_stop_the_others(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_head = Candidate.create_head

    def spoiled(self: Candidate, frozen: FrozenBackbone, classes: int) -> PooledHead:
        head = create_head(self, frozen, classes)
        if self.name == "max":
            torch.nn.init.constant_(head.head.linear.weight, float("nan"))
        return head

    monkeypatch.setattr(Candidate, "create_head", spoiled)
    report = run_tournament(squares(), tmp_path, config(weights, "gap", "max")).report
    gap, failed = report.standings
    assert gap.name == "gap" and len(gap.accuracy) == 2
    assert failed.to_json()["mean"] is None and "epoch 1, step 1" in (failed.failed or "")
    alone = run_tournament(squares(), tmp_path / "alone", config(weights, "max")).report
    assert alone.recommended is None and alone.recommendation


def test_data_that_cannot_be_evaluated(
    tmp_path: Path, weights: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = run_tournament(squares(36, bad=(0, 3)), tmp_path / "a", config(weights, "gap"))
    assert broken.report.judged == "val" and broken.report.box_images == 0
    assert all(any(re.search(rf"\b{i}\.png\b", line) for line in caplog.messages) for i in (0, 3))
    one = squares(24)
    with pytest.raises(ValueError, match=r"\bsquares\b"):
        run_tournament(
            one.select(np.flatnonzero(one.labels == 0)), tmp_path / "b", config(weights, "gap")
        )
    few = one.select(
        [i for i in range(24) if one.labels[i] != 2 or i == 2]
    )  # one image of the last class
    assert run_tournament(few, tmp_path / "c", config(weights, "gap")).report.classes == 3


@pytest.mark.parametrize(
    ("pools", "cause"), [(("simpol",), "'simpol'.*'simpool'"), (("gap", "gap"), r"\bgap\b")]
)
def test_unknown_and_repeated_pools_are_refused(
    tmp_path: Path, weights: Path, pools: tuple[str, ...], cause: str
) -> None:
    with pytest.raises(ValueError, match=cause):
        run_tournament(squares(), tmp_path / "run", config(weights, *pools))
    assert not (tmp_path / "run").exists()


def test_the_candidates(weights: Path, caplog: pytest.LogCaptureFixture) -> None:
    vit = create_backbone("test_vit", weights=weights)
    candidates = pool_candidates(vit, "cls", ["all"])
    assert [c.pool for c in candidates] == [*list_pools(), "cls", "ep", "simpool"]
    resnet = create_backbone("test_resnet")
    assert [c.pool for c in pool_candidates(resnet, "gap", ["all"])] == list_pools()
    by_default = [c.pool for c in pool_candidates(resnet, "gap")]
    assert by_default == [name for name in DEFAULT_POOLS if name not in ("own", "cls")]
    assert {c.name for c in pool_candidates(vit, "cls") if c.tokens != "patches"} == {
        "cls", "ep [CLS; patches]", f"{SIMPOOL} [CLS; patches]",
    }  # fmt: skip
    assert {"simpool (gamma 2)"} == {c.name for c in pool_candidates(resnet, "gap", ["simpool"])}
    with pytest.raises(ValueError, match="'test_resnet'"):
        pool_candidates(resnet, "gap", ["cls"])
    seven = Candidate("seven heads", "simpool", options={"heads": 7})
    caplog.clear()
    assert usable_candidates([*candidates, seven], 64, (10, 10), strict=False) == candidates
    (message,) = caplog.messages
    assert "seven heads" in message and "64" in message
    names = [candidate.name for candidate in gamma_candidates((2, 1))]
    assert names[:3] == ["no gamma", "gamma 1", "gamma 2"]


def test_the_own_pooling_is_a_candidate(caplog: pytest.LogCaptureFixture) -> None:
    attentive, distilled = (
        create_backbone(name) for name in ("test_vit3", "deit_tiny_distilled_patch16_224")
    )
    own, average = create_own_pool(attentive), create_own_pool(distilled)
    first, second, *_ = pool_candidates(attentive, own)
    assert (first.name, first.pool, first.tokens) == ("own", "own", "all")
    assert second == first._replace(name="own (frozen)", options={"frozen": True})
    # Of CLS and the distillation token, without weights: nothing to freeze.
    assert [c.name for c in pool_candidates(distilled, average, ["own", "gap"])] == ["own", "gap"]
    assert not caplog.messages
    resnet = create_backbone("test_resnet")
    assert [c.name for c in pool_candidates(resnet, "gap", ["own", "max"])] == ["gap", "max"]
    assert [c.name for c in pool_candidates(resnet, "gap", ["gap", "own"])] == ["gap"]
    assert "'test_resnet' is gap" in caplog.text
    with pytest.raises(NoOwnPool, match="several"):
        pool_candidates(resnet, NoOwnPool("several maps"), ["own"])
    assert "own" not in [c.name for c in pool_candidates(resnet, NoOwnPool("several maps"))]


def test_a_tournament_with_the_own_pooling(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path, folder = tmp_path / "weights.safetensors", tmp_path / "run"
    save_file(timm.create_model("test_vit3").state_dict(), path)
    settings = replace(config(path, "own", "simpool"), backbone="test_vit3")
    rows = {row.name: row for row in run_tournament(squares(), folder, settings).report.ranked}
    models = load_candidates(folder)
    assert rows.keys() == models.keys() == {"own", "own (frozen)", SIMPOOL}
    assert rows["own"].parameters == rows["own (frozen)"].parameters > 0
    assert rows["own"].trained > rows["own (frozen)"].trained > 0
    assert rows["own"].knn == rows["own (frozen)"].knn is not None
    assert rows["own"].map == "pool" and rows["own"].flops > 0
    weights = load_file(path)["attn_pool.kv.weight"]
    for name, changes in (("own", True), ("own (frozen)", False)):
        assert torch.equal(models[name].pool.head.attn_pool.kv.weight, weights) != changes


DESIGN = (
    56.6, 55.6, 56.8, 55.9, 56.5, 56.4, 56.3, 56.6, 56.5, 56.3, 56.5, 56.4, 56.5, 55.9, 56.4, 57.1, 55.0,
)  # fmt: skip
LAYERS = (57.0, 56.6, 56.5, 56.4, 55.6, 56.3, 56.0, 56.2, 56.6, 56.4, 56.2, 56.2, 54.4, 54.5)


def test_the_ablation_is_the_papers(tmp_path: Path, weights: Path) -> None:
    """Every row of [SimPool Table 10] trains; those whose size the table implies have it."""
    rows = ablation_candidates(create_backbone("test_vit", weights=weights))
    assert sorted(row.paper or 0 for row in rows) == sorted([*DESIGN, *LAYERS])
    short = replace(QUICK, epochs=1)
    ablation = config(weights, kind="ablation", seeds=1, rates=(1e-2,), settings=short)
    report = run_tournament(squares(), tmp_path, ablation).report
    results = {result.name: result for result in report.standings}
    assert not [result.failed for result in results.values() if result.failed]
    matrices = {name: result.parameters // 4096 for name, result in results.items()}
    assert matrices["SimPool"] == 2 and matrices["W_Q = W_K"] == 1
    assert matrices["3 layers"] == 6 and matrices["3 iterations"] == 2
    assert matrices["linear qkv, LN qkv"] == 3
    assert matrices["linear -, LN -"] == matrices["GAP"] == 0
    extra = results["k = 5, concat"].trained - results["k = 5, max"].trained
    assert extra == 5 * 64 * 64 + 64  # the projection of the five vectors


def test_passes_hold_what_fits() -> None:
    sizes, rates = {"a": 4, "b": 3, "c": 99, "d": 1}, {"a": 1, "b": 2, "c": 1, "d": 1}
    trials = [
        Trial(Candidate(name, "gap"), [LearningRates(1.0)] * n, sizes[name])
        for name, n in rates.items()
    ]
    passes = split_into_passes(trials, max_parameters=10)
    names = [[trial.candidate.name for trial in group] for group in passes]
    assert names == [["a", "b"], ["c"], ["d"]]


PARAMETERS = {"small": 0, "large": 100, "cls": 0, "other": 50}


def right(share: float, images: int = 1000) -> Any:
    """The first images are right: (images,)."""
    return (np.arange(images) < round(share * images)).astype(float)


def result(
    name: str, *accuracy: float, tokens: str = "patches", images: int = 1000
) -> CandidateResult:
    pool, size = "cls" if tokens == "cls" else "gap", PARAMETERS.get(name, 0)
    outcomes = [right(value / 100, images) for value in accuracy]
    return CandidateResult(
        name, pool, tokens, accuracy=list(accuracy), parameters=size, outcomes=outcomes
    )


def compared(*results: CandidateResult) -> list[CandidateResult]:
    compare(results)
    return list(results)


@pytest.mark.parametrize(
    ("standings", "first", "numbers"),
    [
        (
            [result("large", 80, 80.2), result("small", 70, 70.2)],
            "large",
            ["80.1", "0.1", "2", "10.0"],
        ),
        (
            [result("large", 80, 82), result("small", 79, 81)],
            "small",
            ["80.0", "1.4", "81.0", "1.4", "2"],
        ),
        ([result("small", 80, 82), result("large", 79, 81)], "small", ["81.0", "1.4"]),
        ([result("large", 80), result("small", 70)], "large", ["80.0"]),
        ([result("cls", 76, 76.2, tokens="cls"), result("large", 52, 52.2)], "cls", ["76.1"]),
        ([result("large", 52, 52.2)], "large", ["52.1"]),
    ],
)
def test_the_recommendation(
    standings: list[CandidateResult], first: str, numbers: list[str]
) -> None:
    """The one to take is named before all others, with its numbers."""
    sentence = recommendation(compared(*standings))
    named = [name for name in re.findall(r"\w+", sentence) if name in ("small", "large", "cls")]
    assert named[0] == first and sentence.endswith(".")
    assert re.findall(r"\d+(?:\.\d+)?", sentence)[: len(numbers)] == numbers


def test_without_a_result_nobody_is_recommended() -> None:
    assert "large" not in recommendation([result("large")])


def test_a_pool_that_diverged_after_its_first_seed_does_not_win() -> None:
    diverged = replace(result("large", 90), failed="the loss is nan")
    report = conclusion(diverged, result("small", 70, 71), result("other", 60, 61))
    assert report.recommended == "small" and [r.name for r in report.ranked] == ["small", "other"]
    assert report.standings[0].to_json()["mean"] is None and "Take small" in report.recommendation


def test_cls_is_explained_only_where_it_wins_by_far() -> None:
    def sentence(cls: float) -> str:
        cls_token = result("cls", cls, cls + 0.2, tokens="cls")
        return recommendation(compared(cls_token, result("large", 52, 52.2)))

    assert "CLS" in sentence(60) and "CLS" not in sentence(54)


def test_ties_are_with_the_best() -> None:
    found = ties(compared(result("b", 69, 71), result("a", 70, 72), result("c", 10, 12)))
    assert [s.name for s in found] == ["a", "b"]


def conclusion(*standings: CandidateResult, images: int = 1000) -> TournamentReport:
    report = TournamentReport(
        data="birds", backbone="lite0", kind="pools", classes=2, judged="test", images=images,
        train_images=10, box_images=400, map_images=100, centred_box=50.0, dim=8, grid=[7, 7], seeds=2,
        rates=[1e-3], standings=list(standings), seconds={}, settings={},
    )  # fmt: skip
    conclude(report, [""])
    return report


def test_of_tied_pools_the_best_map_is_recommended() -> None:
    small, large = result("small", 70, 72), result("large", 70, 72)

    def add_boxes(candidate: CandidateResult, *boxes: float) -> None:
        candidate.boxes = list(boxes)
        candidate.box_outcomes = [right(value / 100, 400) for value in boxes]

    add_boxes(small, 40.0, 42.0)
    add_boxes(large, 60.0, 62.0)
    report = conclusion(small, large)
    assert report.recommended == "large" and "61.0" in report.recommendation
    add_boxes(large, 42.0, 42.0)  # within the noise: the smaller one, with a warning
    report = conclusion(small, large)
    assert report.recommended == "small"
    assert "41.0" in report.recommendation and "50.0" in report.recommendation


def test_boxes_may_be_behind_by_half_of_the_interval() -> None:
    small, large = result("small", 70, 72), result("large", 70, 72)
    for candidate, boxes in ((small, (40, 42)), (large, (50, 50))):  # 8.3 ± 11.9 of 30 images
        candidate.boxes = list(boxes)
        candidate.box_outcomes = [right(value / 100, 30) for value in boxes]
    assert conclusion(small, large).recommended == "large"


def test_a_smaller_pool_is_recommended_only_if_it_is_nearly_as_accurate() -> None:
    small, large = result("small", 78, 80), result("large", 80, 82)
    results = compared(small, large)
    for margin, choice in ((6.0, "small"), (3.0, "large")):  # the small one is 2 points behind
        small.margin = margin
        assert ties(results) == [large, small]
        assert recommendation(results).startswith(f"Take {choice}:")


def test_one_seed_names_the_model_that_is_saved() -> None:
    report = conclusion(result("small", 80.0), result("large", 80.05), images=1000)
    assert report.recommended == "small"
    assert "large is ahead" in report.recommendation and "small" in report.recommendation


def test_a_set_that_is_too_easy() -> None:
    small, large = result("small", 100, 100, images=90), result("large", 100, 99.0, images=90)
    easy = conclusion(small, large, images=90)
    assert "too easy" in easy.recommendation and easy.recommended == "small"
    assert "95.9" in " ".join(explanations(easy))  # 90 of 90 right
    assert (
        "too easy"
        not in conclusion(result("small", 70, 72), result("large", 70, 72)).recommendation
    )


@pytest.mark.parametrize("rates", [(1e-3, 1e-2), (1e-4, 1e-2), (3e-4, 1e-3, 3e-2), (0.5,)])
def test_every_pool_tries_every_learning_rate_of_the_head(rates: tuple[float, ...]) -> None:
    several = TournamentConfig(rates=rates, pool_lr_factors=(1.0, 0.1))
    assert several.choices(has_matrices=False) == [LearningRates(lr) for lr in rates]
    choices = several.choices(has_matrices=True)
    assert sorted({choice.lr for choice in choices}) == sorted(rates)
    assert max(choice.lr * choice.pool_lr_factor for choice in choices) <= 1e-3 * 1.001


def test_the_learning_rates_of_a_pool() -> None:
    pairs = [(1e-3, 1.0), (1e-3, 0.1), (1e-2, 0.1)]  # as fast as 1e-3, but not faster
    config = TournamentConfig(rates=(1e-3, 1e-2), pool_lr_factors=(1.0, 0.1))
    assert config.choices(has_matrices=True) == [LearningRates(*pair) for pair in pairs]
    with pytest.raises(ValueError, match=r"pool_lr_factors.*-1"):
        TournamentConfig(pool_lr_factors=(-1.0,))


def test_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    remaining = RemainingTime([10.0, 30.0, 30.0])
    assert remaining.of_next_stage() == "about 1 min 10 s left"
    now += 20.0  # twice as long as estimated
    assert remaining.of_next_stage() == "about 2 min 0 s left"


def test_learning_rates_are_selected_within_the_noise() -> None:
    def select(*scores: tuple[float, float, float], images: int = 100) -> LearningRates | None:
        states = {}
        for lr, factor, score in scores:
            state = TrainState("", torch.nn.Linear(1, 1), OptimizationConfig(lr=lr))
            for epoch, value in enumerate((0.0, 99.0, 0.0, 0.0, score, score)):
                state.keep_if_best(value, epoch, {})
                state.scores.append(value)
            states[LearningRates(lr, factor)] = state
        return select_rates(states, images)

    rates = [(1e-3, 1.0, 46.0), (3e-3, 0.1, 55.0), (3e-3, 0.03, 55.0), (1e-2, 0.03, 59.0)]
    assert select(*rates) == (3e-3, 0.03)  # one standard error of 100 images is 5
    assert select(*rates, images=10**6) == (1e-2, 0.03)
    assert select((1e-3, 1.0, 56.0), (1e-3, 0.1, 50.0)) == (1e-3, 1.0)
    assert select((1e-3, 1.0, 56.0), (1e-3, 0.1, 53.0)) == (1e-3, 0.1)
    assert select((1e-3, 0.1, 54.0), (1e-3, 0.03, 52.0), (1e-2, 0.1, 58.0)) == (1e-3, 0.03)
    assert select() is None
