"""`cenote clip` trains a small image-text model and prints a line for each split."""

import json
from pathlib import Path

import pytest

from cenote.cli import main

SMALL = [
    "--backbone",
    "resnet_micro",
    "--scratch",
    "--size",
    "32",
    "--epochs",
    "1",
    "--batch",
    "16",
]
SMALL += ["--dim", "16", "--width", "16", "--layers", "1", "--heads", "2"]


def test_a_world(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["clip", "world/tiny", "-o", str(tmp_path / "run"), *SMALL]) == 0
    text = capfd.readouterr().out
    report = json.loads((tmp_path / "run" / "results.json").read_text())
    for split in ("val", "test"):
        assert f"{split}, {report[split]['images']} " in text
    assert str(tmp_path / "run") in text
    assert (
        main(["clip", "world/tiny", "-o", str(tmp_path / "run"), *SMALL]) == 2
    )  # the folder has a run


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--pool", "simpol"], "no pool 'simpol'; did you mean 'simpool'?"),
        (["--settings", "lrr=3"], "'--settings lrr'; did you mean 'lr'?"),
        (["--epochs", "0"], "--epochs must be greater than 0, got 0"),
    ],
)
def test_sentences(
    options: list[str], sentence: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["clip", "world/tiny", "-o", str(tmp_path / "run"), *SMALL, *options]) == 2
    error = capfd.readouterr().err
    assert sentence in error and error.count("\n") == 1 and not (tmp_path / "run").exists()
