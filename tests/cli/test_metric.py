"""`cenote metric` trains, prints a line an epoch and a table, and leaves a run that the other commands read."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from cenote.cli import main
from cenote.cli.metric import table
from cenote.models import create_model, save_model
from cenote.train.reports import FairReport, MetricReport

SMALL = [
    "--backbone",
    "resnet_micro",
    "--scratch",
    "--size",
    "64",
    "--epochs",
    "2",
    "--dim",
    "16",
    "--batch",
    "12",
]


def test_a_world(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "m"
    more = [
        "--pool-options",
        "prototypes=8",
        "--loss",
        "multi-similarity",
        "--metrix",
        "feature",
        "--zero-shot",
        "0.1",
    ]
    assert main(["metric", "world/tiny", *SMALL, *more, "-o", str(out)]) == 0
    text, messages = capfd.readouterr()
    assert "epoch 1/2" in messages and "epoch 2/2" in messages and re.search(r"\b48 .*\b3 ", text)
    head, row = text.splitlines()[-3:-1]
    assert head.split() == ["R@1", "R@2", "R@4", "R@8", "P@1", "RP", "MAP@R"]
    report = json.loads((out / "results.json").read_text())
    shares = [
        value
        for key, value in report["test"].items()
        if key not in ("images", "queries", "without_match")
    ]
    assert row.split()[2:] == [f"{value:.2f}" for value in shares]
    assert report["options"]["metrix"] == ["feature"] and report["classes"]["train"] == [
        "bird",
        "car",
        "cat",
    ]
    assert (
        main(["evaluate", str(out), "world/tiny", "--on", "retrieve", "-o", str(tmp_path / "e")])
        == 0
    )
    judged = json.loads((tmp_path / "e" / "results.json").read_text())["retrieve"]
    # One pair of neighbours in another order, for a similarity that was rounded differently, changes it by 0.2.
    assert (
        judged["map@r"] == pytest.approx(report["test"]["map@r"], abs=0.5)
        and judged["images"] == 48
    )


def test_help_names_choices_and_defaults(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["metric", "-h"]) == 0
    text = " ".join(capfd.readouterr().out.replace("│", " ").split())
    assert "None" not in text
    for value in ("(default: conventional)", "(default: classes)", "{exclude,miss}", "chunk=64"):
        assert value in text


def report(test: dict[str, float], classes: list[str]) -> MetricReport:
    return MetricReport(
        backbone="resnet",
        pool="gap",
        epoch=1,
        chosen_by="last",
        val=None,
        test=test,
        classes={"train": ["bird"], "test": classes},
        options={},
        seconds={},
        settings={},
        data="",
    )


def test_the_table_counts_queries_without_a_match() -> None:
    scores = {"map@r": 100.0, "queries": 5, "without_match": 2, "images": 7}
    *_, left_out, note = table(report(scores, ["cat"])).splitlines()
    assert "2 queries" in left_out and note  # of one class
    missed = table(report({**scores, "queries": 7}, ["cat", "dog"])).splitlines()[-1]
    assert "2 queries" in missed and missed != left_out


def test_standard_deviations_are_below_their_mean() -> None:
    alone, together = (
        {"map@r": value, "queries": 7, "without_match": 0, "images": 7} for value in (41.0, 52.5)
    )
    fair = FairReport(
        backbone="resnet",
        pool="gap",
        test=alone,
        concatenated=together,
        folds=[],
        classes={"train": ["bird"], "test": ["cat", "dog"]},
        settings={},
        fold="fold-1",
        collections=81,
        deviation={"test": {"map@r": 0.25}, "concatenated": {"map@r": 1.5}},
    )
    lines = table(fair).splitlines()
    assert [line.split()[-1] for line in lines[2:6]] == ["41.00", "0.25", "52.50", "1.50"]
    assert "81" in lines[6]


def test_evaluate_names_the_fold_of_its_model(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    save_model(create_model("resnet_micro", "gap", 0, img_size=64), tmp_path)
    (tmp_path / "results.json").write_text(
        '{"task": "metric", "protocol": "fair", "fold": "fold-3-2"}'
    )
    for i in range(3):
        (tmp_path / "data" / "cat").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 64), (i, 90, 9)).save(tmp_path / "data" / "cat" / f"{i}.png")
    asked = ["evaluate", str(tmp_path), str(tmp_path / "data"), "--on", "retrieve"]
    assert main([*asked, "--without-match", "miss"]) == 0
    assert "fold-3-2" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--loss", "tripplet"], "no metric loss 'tripplet'"),
        (["--metrix", "feature,embedd"], "got 'embedd'; did you mean 'embed'?"),
        (["--zero-shot", "0.1", "--pool", "gap"], "'gap' has none: --pool gsp"),
        (["--recipe", "metric/multi"], "no recipe 'metric/multi'"),
        (["--weights", "nowhere"], "leave out it or --weights"),
        (["--mix", "pos-neg"], "--mix says which pairs Metrix mixes"),
    ],
)
def test_sentences(
    more: list[str], sentence: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["metric", "world/tiny", *SMALL, *more, "-o", str(tmp_path / "m")]) == 2
    error = capfd.readouterr().err
    assert sentence in error and error.count("\n") == 1 and not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--grid", "eps=0.5,5", "--resume"], "--resume cannot be combined with --grid"),
        (["--runs", "0"], "--runs must be a whole number of at least 1"),
        (["--grid", "seed=1,2"], "use --runs"),
    ],
)
def test_options_that_a_grid_refuses(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["metric", "world/tiny", *SMALL, *options, "-o", str(tmp_path / "g")]) == 2
    assert message in capsys.readouterr().err
