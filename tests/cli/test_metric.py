"""`cenote metric` trains, prints a line an epoch and a table, and leaves a run that the other commands read."""

import json
from pathlib import Path

import pytest
from PIL import Image

from cenote.cli import main
from cenote.cli._retrieving import ONE_CLASS
from cenote.cli.metric import told
from cenote.models import create_model, save_model

SMALL = ["--backbone", "resnet_micro", "--scratch", "--size", "64", "--epochs", "2", "--dim", "16", "--batch", "12"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CENOTE_CACHE", str(tmp_path / "cache"))


def test_a_world(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "m"
    more = ["--pool-options", "prototypes=8", "--loss", "multi-similarity", "--metrix", "feature", "--zero-shot", "0.1"]
    assert main(["metric", "world/tiny", *SMALL, *more, "-o", str(out)]) == 0
    said = capfd.readouterr().out
    assert "epoch 1/2" in said and "epoch 2/2" in said and "3 classes to learn from are too few" in said
    assert "48 images of 3 classes that were not trained on" in said
    head, row = said.splitlines()[-3:-1]
    assert head.split() == ["R@1", "R@2", "R@4", "R@8", "P@1", "RP", "MAP@R"]
    report = json.loads((out / "results.json").read_text())
    shares = [value for key, value in report["test"].items() if key not in ("images", "queries", "without_match")]
    assert row.split()[2:] == [f"{value:.2f}" for value in shares]
    assert report["options"]["metrix"] == ["feature"] and report["classes"]["train"] == ["bird", "car", "cat"]
    assert main(["evaluate", str(out), "world/tiny", "--on", "retrieve", "-o", str(tmp_path / "e")]) == 0
    judged = json.loads((tmp_path / "e" / "results.json").read_text())["retrieve"]
    assert judged["map@r"] == pytest.approx(report["test"]["map@r"], abs=1e-3) and judged["images"] == 48


def test_help_names_choices_and_defaults(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["metric", "-h"]) == 0
    said = " ".join(capfd.readouterr().out.replace("│", " ").split())
    assert "None" not in said
    for text in ("(default: conventional)", "(default: classes)", "{exclude,miss}", "the score that chooses it",
                 "options given here win", "chunk=64"):  # fmt: skip
        assert text in said


def test_the_table_tells_what_it_is_a_mean_of() -> None:
    scores = {"map@r": 100.0, "queries": 5, "without_match": 2, "images": 7}
    said = told({"test": scores, "classes": {"test": ["cat"]}}).splitlines()
    assert said[-2:] == ["left out: 2 queries with nothing to find", ONE_CLASS]
    scores |= {"queries": 7}
    assert "counted as misses: 2 queries" in told({"test": scores, "classes": {"test": ["cat", "dog"]}})


def test_the_scatter_of_collections_stands_below_their_mean() -> None:
    one, other = ({"map@r": value, "queries": 7, "without_match": 0, "images": 7} for value in (41.0, 52.5))
    deviation = {"test": {"map@r": 0.25}, "concatenated": {"map@r": 1.5}}
    report = {"test": one, "concatenated": other, "deviation": deviation, "collections": 81}
    said = told({**report, "classes": {"test": ["cat", "dog"]}}).splitlines()
    assert [line.split() for line in said[2:6]] == [
        ["mean", "of", "4", "41.00"], ["±", "0.25"], ["concatenated", "52.50"], ["±", "1.50"]
    ]  # fmt: skip
    assert said[6] == "the mean of all 81 collections of four models, ± their standard deviation"


def test_evaluate_says_which_of_four_models_it_judges_and_that_one_class_is_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    save_model(create_model("resnet_micro", "gap", 0, img_size=64), tmp_path)
    (tmp_path / "results.json").write_text('{"task": "metric", "protocol": "fair", "fold": "fold-3-2"}')
    for i in range(3):
        (tmp_path / "data" / "cat").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 64), (i, 90, 9)).save(tmp_path / "data" / "cat" / f"{i}.png")
    asked = ["evaluate", str(tmp_path), str(tmp_path / "data"), "--on", "retrieve"]
    assert main([*asked, "--without-match", "miss"]) == 0
    said = capfd.readouterr()
    assert "the one that validated best, fold-3-2;" in said.err and ONE_CLASS in said.out


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--loss", "tripplet"], "no metric loss 'tripplet'"),
        (["--metrix", "feature,embedd"], "no place to mix 'embedd'; did you mean 'embed'?"),
        (["--zero-shot", "0.1", "--pool", "gap"], "'gap' has none: --pool gsp"),
        (["--recipe", "metric/multi"], "no recipe 'metric/multi'"),
        (["--weights", "nowhere"], "leave it out, or --weights"),
        (["--mix", "pos-neg"], "--mix says which pairs Metrix mixes"),
    ],
)
def test_bad_input(more: list[str], sentence: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["metric", "world/tiny", *SMALL, *more, "-o", str(tmp_path / "m")]) == 2
    said = capfd.readouterr().err
    assert sentence in said and said.count("\n") == 1 and not (tmp_path / "m").exists()
