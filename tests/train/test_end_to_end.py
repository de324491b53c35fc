"""A tournament of whole networks: its rows are runs of `fit`, also after a kill, and it says how they were trained."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cenote
from cenote.data import open_dataset
from cenote.evaluate.classify import classify
from cenote.evaluate.wsol import localize
from cenote.report.tournament import TournamentReport, tournament_table
from cenote.train.config import RunConfig
from cenote.train.configure import configure
from cenote.train.engine import Diverged, Engine
from cenote.train.fit import fit
from cenote.train.recipes import parse_recipe
from cenote.train.tournament import end_to_end
from cenote.train.tournament.candidates import gamma_candidates
from cenote.train.tournament.end_to_end import run_end_to_end, with_pool
from cenote.train.tournament.load import load_candidates
from cenote.train.tournament.progress import read_progress
from cenote.train.tournament.run import TournamentConfig

RECIPE = """
model: {backbone: test_resnet, pool: simpool, pool_options: {gamma: 3.0}, norm: none}
train: {epochs: 2, batch: 16, lr: 0.01, optimizer: sgd, checkpoint_minutes: 0}
augment: {kind: crop, size: 64}
paper: {source: none}
data: world/tiny
"""
SIMPOOL = "simpool (gamma 3)"  # of the recipe
CONFIG = TournamentConfig(pools=("gap", "simpool"), seeds=2)


@pytest.fixture(scope="module")
def network() -> RunConfig:
    return configure("fit", parse_recipe(RECIPE, "tiny"))


def run(folder: Path, network: RunConfig, resume: bool = False, **changes: Any) -> TournamentReport:
    config = replace(CONFIG, **changes)
    return run_end_to_end(
        open_dataset("world/tiny"), folder, config, "tiny", network, resume
    ).report


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, network: RunConfig) -> Path:
    """A tournament that was not interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "t"
    run(folder, network)
    return folder


def numbers(folder: Path) -> dict[str, Any]:
    """All of results.json but the times."""
    report: dict[str, Any] = json.loads((folder / "results.json").read_text())
    for row in report["standings"]:
        assert row.pop("ms") > 0 and row.pop("backbone_ms") > 0
    del report["seconds"], report["table"]
    return report


def test_the_report_and_the_model(whole: Path, network: RunConfig) -> None:
    report, data = numbers(whole), open_dataset("world/tiny")
    rows = {row["name"]: row for row in report["standings"]}
    assert set(rows) == {"gap", SIMPOOL} and report["recipe"] == "tiny"
    for row in rows.values():
        assert len(row["accuracy"]) == len(row["val"]) == len(row["boxes"]) == 2
        assert row["failed"] is None and row["lr"] is None
    assert {name: row["map"] for name, row in rows.items()} == {"gap": "cam", SIMPOOL: "pool"}
    assert rows[SIMPOOL]["options"] == {"gamma": 3.0}
    assert rows[SIMPOOL]["trained"] - rows["gap"]["trained"] == rows[SIMPOOL]["parameters"] > 0
    model, row = cenote.load(whole), rows[report["recommended"]]
    assert sum(p.numel() for p in model.parameters()) == row["trained"]
    test = data.split("test")
    assert classify(model, test).accuracy == pytest.approx(row["accuracy"][0], abs=100 / 18 + 1e-6)
    scores = localize(model, test, resamples=0, cases=0).to_json()["oracle"]
    assert row["boxes"][0] == pytest.approx(scores["max_box_acc_v2"]["score"], abs=100 / 18)
    assert report["centred_box"] == pytest.approx(scores["centred_box"]["score"])
    # Only the models of the first seed are kept, and no checkpoint is.
    assert len(list(whole.glob("seed-0/heat-*/fit/model.safetensors"))) == 2
    assert not list(whole.glob("seed-1/**/model.safetensors"))
    assert not list(whole.rglob("checkpoint.pt"))
    assert load_candidates(whole).keys() == {report["recommended"]}


def test_a_candidate_is_a_run_of_fit(tmp_path: Path, whole: Path, network: RunConfig) -> None:
    row = next(row for row in numbers(whole)["standings"] if row["name"] == SIMPOOL)
    report = fit(open_dataset("world/tiny"), tmp_path, network)
    assert report.test is not None
    assert report.test["accuracy"] == pytest.approx(row["accuracy"][0], abs=100 / 18 + 1e-6)


class Killed(BaseException):
    """Ends a tournament without a process that can be killed."""


@contextmanager
def killed_after(epochs: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    end_epoch, ended = Engine._end_epoch, 0

    def count(engine: Engine) -> None:
        nonlocal ended
        end_epoch(engine)
        ended += 1
        if ended == epochs:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Engine, "_end_epoch", count)
        yield


def test_killed_and_resumed_it_ends_the_same(
    tmp_path: Path,
    whole: Path,
    network: RunConfig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Killed within the second network, and again after the last epoch of the third."""
    with killed_after(3, monkeypatch):
        run(tmp_path, network)
    progress = read_progress(tmp_path)
    assert (progress.done, progress.total, progress.report) == (3, 2 * 2 * 2, None)
    gap, simpool = progress.contenders
    assert len(gap.accuracy) == 1 and (simpool.accuracy, simpool.epoch) == ([], 1)
    assert load_candidates(tmp_path) == {}
    with pytest.raises(ValueError, match=r"lr was 0\.01 and is now 0\.1"):
        run(tmp_path, replace(network, train=replace(network.train, lr=0.1)), resume=True)
    with killed_after(3, monkeypatch):
        run(tmp_path, network, resume=True)
    caplog.clear()
    with caplog.at_level(logging.INFO, "cenote"):
        run(tmp_path, network, resume=True)
    assert len([line for line in caplog.messages if line.startswith("epoch")]) == 2
    assert numbers(tmp_path) == numbers(whole)
    progress = read_progress(tmp_path)
    assert progress.stage == "finished" and progress.done == progress.total
    one, other = (folder / "model.safetensors" for folder in (tmp_path, whole))
    assert one.read_bytes() == other.read_bytes()


def test_a_network_that_diverges(
    tmp_path: Path, network: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit_or_diverge(data: Any, folder: Path, config: RunConfig, **options: Any) -> Any:
        if config.model.pool == "simpool":
            raise Diverged("the loss is nan in epoch 1, step 2, with a.png; try a smaller --lr")
        return fit(data, folder, config, **options)

    monkeypatch.setattr(end_to_end, "fit", fit_or_diverge)
    report = run(tmp_path, replace(network, train=replace(network.train, epochs=1)), seeds=1)
    assert [row.failed for row in report.standings] == [None, "the loss is nan in epoch 1, step 2"]
    assert report.recommended == "gap" and (tmp_path / "model.safetensors").is_file()


def test_the_table_says_how_networks_were_trained(whole: Path) -> None:
    values = numbers(whole) | {"kind": "ablation", "standings": [], "seconds": {}}
    report = TournamentReport(**values)
    table = tournament_table(report)
    assert "test_resnet, trained end to end" in table and "recipe tiny" in table
    assert "Table 10" in table and "frozen" not in table
    assert "frozen" in tournament_table(replace(report, recipe=None))


def test_options_of_a_candidate_replace_those_of_the_recipe(network: RunConfig) -> None:
    without, first, *_ = gamma_candidates((1.0,))
    assert with_pool(network, without).model.pool_options == dict(without.options)
    assert with_pool(network, first).model.pool_options == {"gamma": 1.0}


def test_a_recipe_that_trains_a_head_alone_is_refused(tmp_path: Path, network: RunConfig) -> None:
    with pytest.raises(ValueError, match="does not train the backbone"):
        run(tmp_path / "t", replace(network, task="head"))
    assert not (tmp_path / "t").exists()
