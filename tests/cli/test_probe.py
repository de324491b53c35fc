"""`cenote probe` as a user runs it: what it writes and prints, and one sentence for each mistake."""

import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from cenote.cli import main


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "test_vit.safetensors"
    save_file(timm.create_model("test_vit").state_dict(), path)
    return str(path)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Two classes, no splits, one file that is not an image."""
    rng = np.random.default_rng(0)
    for name in "ab":
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(10):
            pixels = rng.integers(0, 200, (40, 50, 3), np.uint8) + (50 if name == "a" else 0)
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "data" / name / f"{i}.png")
    (tmp_path / "data" / "a" / "10.png").write_bytes(b"no image")
    return tmp_path / "data"


def test_a_folder_of_photographs(
    tmp_path: Path, folders: Path, weights: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["probe", str(folders), "-o", str(out), "--backbone", "test_vit", "test_vit"]
    command += ["--weights", weights, weights, "--epochs", "1", "--seeds", "2", "--lr", "1.6"]
    assert main(command) == 0
    printed, err = capsys.readouterr()
    for name in ("results.json", "table.md", "table.txt", "index.html"):
        assert (out / name).stat().st_size > 100 and name in printed
    assert "10.png" in err and "no test split" in err
    report = json.loads((out / "results.json").read_text())
    first, second = report["rows"]
    assert sum(first["images"].values()) == 20  # without the broken file
    assert first["probes"] == second["probes"]  # the same weights
    header, *rows = (out / "table.md").read_text().split("\n\n")[1].splitlines()
    assert "| k-NN | LP | EP | EP [CLS; patches] |" in header and len(rows) == 3
    assert "cenote probe" in (out / "index.html").read_text()
    assert main(command) == 2 and "already has probes" in capsys.readouterr().err
    assert main([*command, "--resume"]) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--backbone", "test_vit", "vit_tny_patch16_224"], "no backbone 'vit_tny_patch16_224'"),
        (
            ["--backbone", "lite0", "test_vit", "--weights", "x.pt"],
            "for each of 2 backbones, got 1",
        ),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--epochs", "0"], "--epochs must be greater than 0, got 0"),
        (["--batch", "1"], "--batch must be at least 2, got 1"),
        (["--lr", "-1"], "--lr needs different positive numbers"),
        (["--recipe", "probing/epp"], "no recipe 'probing/epp'; did you mean 'probing/ep'?"),
        (["--resume"], "there are no probes to resume"),
        (["--bakbone", "lite0"], "--backbone"),
    ],
)
def test_sentences(
    tmp_path: Path,
    folders: Path,
    weights: str,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    if arguments[0] == "--backbone" and "--weights" not in arguments:
        arguments = [*arguments, "--weights", weights, "own"]
    out = tmp_path / "out"
    assert main(["probe", str(folders), "-o", str(out), *arguments]) == 2
    err = capsys.readouterr().err
    assert sentence in err and "Traceback" not in err and not out.exists()
