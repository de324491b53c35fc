"""`cenote models` and `cenote bench models` as a user runs them."""

import json

import pytest

from cenote.cli import main


def test_families_are_listed_with_their_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    assert "vision_transformer" in out and "resnet" in out


def test_a_pattern_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "resnet10t", "--check", "--jobs", "1", "--style", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["name"] == "resnet10t" and row["ok"] and row["dim"] == 512 and row["any_size"]
    assert main(["models", "resnet10t", "--all", "--jobs", "1"]) == 0  # --all: shapes only
    assert "1 of 1" in capsys.readouterr().out


def test_sentences_of_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "nosuch*"]) == 2
    assert capsys.readouterr().err.startswith(
        "cenote models: no architecture and no family of timm matches 'nosuch*'"
    )


def test_models_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    argv = [
        "bench",
        "models",
        "--networks",
        "vit_small_patch16_224",
        "--batch",
        "1",
        "--rounds",
        "1",
        "--json",
    ]
    assert main(argv) == 0
    (network,) = json.loads(capsys.readouterr().out)["networks"]
    rows = {row["pool"]: row for row in network["models"]}
    table = {"gap", "cait", "slot", "ge", "simpool", "cls", "gap, CLS kept"}
    assert set(rows) == table and rows["gap"]["to_gap"] == 1
    for row in rows.values():  # [SimPool Table 8]
        assert row["parameters"] / 1e6 == pytest.approx(row["paper"][0], abs=0.12)
        assert row["gflops"] == pytest.approx(row["paper"][1], abs=0.07)
    assert rows["cls"]["parameters"] / 1e6 == pytest.approx(22.1, abs=0.05)  # S Table 8
    assert rows["cls"]["gflops"] == pytest.approx(4.24, abs=0.01)
    assert rows["simpool"]["parameters"] / 1e6 == pytest.approx(22.3, abs=0.06)


def test_sentences_of_bench(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "models", "--networks", "resnet5"]) == 2
    assert "resnet5" in capsys.readouterr().err
    assert main(["bench", "models", "--sizes", "2x8x4x4"]) == 2
    assert "does not use --sizes" in capsys.readouterr().err
    assert main(["bench", "pools", "--networks", "resnet18"]) == 2
    assert "does not use --networks" in capsys.readouterr().err


def test_bench_models_measures_the_pools_that_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--batch", "1", "--rounds", "1", "--json"]
    assert main(["bench", "models", "--networks", "resnet18", "--pools", "max", *quick]) == 0
    (network,) = json.loads(capsys.readouterr().out)["networks"]
    assert [row["pool"] for row in network["models"]] == ["gap", "max"]
    assert network["models"][1]["paper"] is None
