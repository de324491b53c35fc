"""`cenote export` as a user runs it."""

import os
from pathlib import Path

import pytest
import torch

from cenote.cli import main
from cenote.models import create_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = create_model("resnet18", "simpool", 3, layers=(1, 1, 1, 1), channels=(8, 16, 32, 64))
    model.save(tmp_path / "run")
    return tmp_path / "run"


def test_a_saved_model_becomes_onnx(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import onnxruntime

    out = tmp_path / "model.onnx"
    assert main(["export", str(folder), "-o", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{out}  ")
    assert lines[1:4] == [
        "  input   images (batch, 3, height, width)",
        "  output  logits (batch, 3)",
        "  output  map (batch, 1, rows, columns)",
    ]
    assert float(lines[-1].removeprefix("  largest difference to PyTorch: ")) < 1e-4
    session = onnxruntime.InferenceSession(str(out))
    assert session.run(None, {"images": torch.zeros(1, 3, 64, 96).numpy()})[1].shape == (1, 1, 2, 3)


def test_a_backbone_becomes_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "model.pt2"
    options = ["--backbone", "resnet18", "--pool", "simpool", "--no-pretrained"]
    assert main(["export", *options, "-o", str(out), "--format", "torch", "--output", "embedding"]) == 0
    assert "output  embedding (batch, 512)" in capsys.readouterr().out
    vectors, maps = torch.export.load(out).module()(torch.zeros(1, 3, 64, 96))
    assert vectors.shape == (1, 512) and maps.shape == (1, 1, 2, 3)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "name a saved model's folder, or a backbone"),
        (["a", "--backbone", "lite0"], "and not both"),
        (["no_such_folder"], "no such model folder: no_such_folder"),
        (["--backbone", "resnet81", "--no-pretrained"], "no backbone 'resnet81'"),
        (["--backbone", "resnet18", "--no-pretrained", "--pool", "simpol"], "did you mean 'simpool'"),
        (["--backbone", "resnet18", "--no-pretrained", "-o", "no_such_folder/m.onnx"], "no such folder"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_input_is_one_sentence(argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", *argv]) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("cenote export: ") and sentence in err and err.count("\n") == 1


def test_a_broken_folder_is_one_sentence_and_writes_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.truncate(folder / "model.safetensors", 100)
    assert main(["export", str(folder), "-o", str(tmp_path / "m.onnx")]) == 2
    assert "is not a whole safetensors file" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
