"""Grids and screening designs: their cells, repeated runs, and what a second call does."""

import csv
from pathlib import Path

import numpy as np
import pytest

from cenote.train import grid as module
from cenote.train.configure import configure
from cenote.train.grid import (
    CellReport,
    Design,
    main_effects,
    run_grid,
    selection_metric,
    with_cell,
)
from tests.synthetic import discs

METRIC = configure(
    "metric",
    **{"backbone": "test_vit", "size": 32, "scratch": True},
    options={"dim": 16, "images_per_class": 3, "validate": "last"},
    settings={"epochs": 1, "batch": 12, "lr": 1e-3, "warmup": 0},
)


def test_all_combinations_or_the_half_with_clear_main_effects() -> None:
    cells = Design.parse(["prototypes=16,64", "eps=0.5,5,20"]).cells
    assert len(cells) == 6 and cells[0] == {"prototypes": 16, "eps": 0.5}
    half = Design.parse(["a=0,1", "b=0,1", "c=0,1", "d=0,1"], screen=True).cells
    signs = np.array([[2 * value - 1 for value in cell.values()] for cell in half])
    assert len(half) == 8 and np.all(signs.prod(1) == 1)  # I = ABCD
    np.testing.assert_array_equal(signs.T @ signs, 8 * np.eye(4))  # orthogonal
    assert Design.parse((), runs=5).cells == ({},)
    with pytest.raises(ValueError, match="--screen"):
        Design.parse(["a=0,1", "b=0,1"], screen=True)
    with pytest.raises(ValueError, match="eps=x"):
        Design.parse(["eps=x"])
    with pytest.raises(ValueError, match="each key once"):
        Design.parse(["eps=1", "eps=2"])
    with pytest.raises(ValueError, match="use --runs"):
        Design.parse(["seed=1,2"])
    with pytest.raises(ValueError, match="--runs must be a whole number of at least 1"):
        Design.parse(["eps=1"], runs=0)


def test_effects_are_recovered() -> None:
    cells = Design.parse(["a=0,1", "b=0,1", "c=0,1", "d=0,1"], screen=True).cells
    reports = [
        CellReport(cell, 1, {"map@r": 10 + 3 * cell["a"] - 2 * cell["c"]}, {}) for cell in cells
    ]
    effects = main_effects(reports, "map@r")
    assert effects == pytest.approx({"a": 3, "b": 0, "c": -2, "d": 0}, abs=1e-12)


def test_metric_runs_are_repeated_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = METRIC
    cell = with_cell(config, {"prototypes": 4, "zero_shot": 0.1, "lr": 2e-3}, run=1)
    assert (cell.model.pool_options["prototypes"], cell.options.zero_shot) == (4, 0.1)
    assert (cell.train.lr, cell.train.seed) == (2e-3, 1)
    with pytest.raises(ValueError, match="protypes"):
        run_grid(discs(), tmp_path / "wrong", config, Design.parse(["protypes=2,4"]))
    design = Design.parse(["prototypes=2,4"], runs=2)
    reports = run_grid(discs(), tmp_path, config, design)
    assert [report.runs for report in reports] == [2, 2]
    assert all("map@r" in report.deviation for report in reports)
    assert not list(tmp_path.rglob("*.safetensors"))
    rows = list(csv.DictReader((tmp_path / "grid.csv").open(newline="")))
    assert float(rows[1]["map@r"]) == pytest.approx(reports[1].mean["map@r"], abs=1e-3)
    monkeypatch.setattr(module, "_train", None)  # nothing is left to train
    assert run_grid(discs(), tmp_path, config, design) == reports
    with pytest.raises(ValueError, match="settings"):
        run_grid(discs(), tmp_path, config, Design.parse(["prototypes=2,8"], runs=2))
    with pytest.raises(ValueError, match="data was"):
        run_grid(discs(classes=12), tmp_path, config, design)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="torchrun"):
        run_grid(discs(), tmp_path, config, design)


def test_effects_are_on_the_metric_that_selects() -> None:
    scores = {"val boxes": 1.0, "val accuracy": 1.0, "accuracy": 1.0, "top5": 1.0}
    assert selection_metric(configure("fit"), scores) == "val accuracy"
    assert selection_metric(configure("fit", select="boxes"), scores) == "val boxes"
    assert selection_metric(configure("fit"), {"val mAP": 1.0, "mAP": 1.0}) == "val mAP"
    assert selection_metric(METRIC, {"recall@1": 1.0, "map@r": 1.0, "recall@8": 1.0}) == "map@r"
