"""`cenote export` as a user runs it."""

import os
import re
from pathlib import Path

import pytest
import torch

from cenote.cli import main
from tests.toy_models import narrow_resnet


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    narrow_resnet().save(tmp_path / "run")
    return tmp_path / "run"


def test_a_saved_model_becomes_onnx(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import onnxruntime

    out = tmp_path / "model.onnx"
    assert main(["export", str(folder), "-o", str(out)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{out}  ")
    for name, shape in {
        "images": "batch, 3, height",
        "logits": "batch, 3",
        "map": "batch, 1, rows",
    }.items():
        assert f" {name} ({shape}" in text
    assert float(text.split()[-1]) < 1e-4  # the largest difference to PyTorch
    session = onnxruntime.InferenceSession(str(out))
    assert session.run(None, {"images": torch.zeros(1, 3, 64, 96).numpy()})[1].shape == (1, 1, 2, 3)


def test_a_backbone_becomes_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "model.pt2"
    options = ["--backbone", "resnet_micro", "--pool", "simpool", "--no-pretrained"]
    assert (
        main(["export", *options, "-o", str(out), "--format", "torch", "--output", "embedding"])
        == 0
    )
    width = re.search(r"embedding \(batch, (\d+)\)", capsys.readouterr().out)
    vectors, maps = torch.export.load(out).module()(torch.zeros(1, 3, 64, 96))
    assert width and vectors.shape == (1, int(width[1])) and maps.shape[:2] == (1, 1)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "either a folder of a saved model or a backbone"),
        (["a", "--backbone", "lite0"], "either a folder"),
        (["no_such_folder"], "no such model folder: no_such_folder"),
        (["run", "-o", "m.onx"], "-o m.onx: the file must end in .onnx, or in .pt2 with --format"),
        (["run", "-o", "m.onnx", "--format", "torch"], "or in .pt2 with --format torch"),
        (["no_such_folder", "--format", "torch"], "no such model folder: no_such_folder"),
        (["--backbone", "resnet81", "--no-pretrained"], "no backbone 'resnet81'"),
        (
            ["--backbone", "resnet_micro", "--no-pretrained", "--pool", "simpol"],
            "did you mean 'simpool'",
        ),
        (
            ["--backbone", "resnet_micro", "--no-pretrained", "-o", "no_such_folder/m.onnx"],
            "no such folder",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sentences(argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", *argv]) == 2
    out, err = capsys.readouterr()
    assert (
        not out and err.startswith("cenote export: ") and sentence in err and err.count("\n") == 1
    )


def test_a_damaged_model_writes_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.truncate(folder / "model.safetensors", 100)
    assert main(["export", str(folder), "-o", str(tmp_path / "m.onnx")]) == 2
    assert "model.safetensors" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
