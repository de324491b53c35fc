"""`cenote tournament` as a user runs it: what it writes and prints, and one sentence for each mistake."""

import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

import cenote
from cenote.cli import main


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A small ViT with random weights in a file, and a quick tournament."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "test_vit.safetensors"
    save_file(timm.create_model("test_vit").state_dict(), path)
    return [
        "--backbone",
        "test_vit",
        "--weights",
        str(path),
        "--epochs",
        "1",
        "--seeds",
        "2",
        "--batch",
        "8",
    ]


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Two classes, no splits, one file that is not an image."""
    rng = np.random.default_rng(0)
    for name in "ab":
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(8):
            pixels = rng.integers(0, 200, (40, 50, 3), np.uint8) + (50 if name == "a" else 0)
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "data" / name / f"{i}.png")
    (tmp_path / "data" / "a" / "8.png").write_bytes(b"no image")
    return tmp_path / "data"


def test_a_folder_of_photographs(
    tmp_path: Path, folders: Path, vit: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert (
        main(["tournament", str(folders), "-o", str(run), "--pools", "gap", "simpool", "cls", *vit])
        == 0
    )
    out, err = capsys.readouterr()
    for name in ("results.json", "table.md", "table.txt", "plot.png", "plot.svg", "pictures.jpg"):
        assert (run / name).stat().st_size > 100 and name in out
    report = json.loads((run / "results.json").read_text())
    assert report["recommendation"] in out
    assert report["box_images"] == 0 and "boxes" not in (run / "table.txt").read_text()
    assert all(row["ms"] > 0 and row["backbone_ms"] > 0 for row in report["standings"])
    assert "8.png" in err
    assert cenote.load(run).class_names == ["a", "b"]
    assert (run / "object_map.safetensors").is_file()
    again = ["tournament", str(folders), "-o", str(run), "--pools", "gap", "simpool", "cls", *vit]
    assert main(again) == 2 and str(run) in capsys.readouterr().err
    assert main([*again, "--resume"]) == 0
    assert json.loads((run / "results.json").read_text()) | {"seconds": 0} == report | {
        "seconds": 0
    }


def test_gamma(
    tmp_path: Path, folders: Path, vit: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert (
        main(
            [
                "tournament",
                str(folders),
                "-o",
                str(run),
                "--gamma",
                "2",
                "1.25",
                *vit,
                "--lr",
                "0.01",
            ]
        )
        == 0
    )
    names = {row["name"] for row in json.loads((run / "results.json").read_text())["standings"]}
    assert names == {
        "no gamma",
        "gamma 1.25",
        "gamma 2",
        "gamma learned",
        "gamma learned, at most 5",
        "gamma learned, lr x0.1",
    }


def test_networks_trained_end_to_end(
    tmp_path: Path, folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    command = ["tournament", str(folders), "-o", str(run), "--gamma", "2", "--seeds", "1"]
    command += ["--recipe", "simpool/resnet18-supervised", "--backbone", "test_resnet"]
    assert main([*command, "--size", "32", "--epochs", "1", "--batch", "8", "--lr", "0.01"]) == 0
    out = capsys.readouterr().out
    for name in ("table.md", "table.txt", "plot.png", "pictures.jpg", "index.html"):
        assert (run / name).stat().st_size > 100 and name in out
    report = json.loads((run / "results.json").read_text())
    assert report["settings"]["lr"] == 0.01 and report["settings"]["epochs"] == 1
    assert report["settings"]["warmup"] == pytest.approx(0.2)  # the recipe's is 5
    assert "trained end to end" in out and "frozen" not in out
    assert "frozen" not in (run / "page.json").read_text()
    assert [path.parent for path in run.rglob("object_map.safetensors")] == [run]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--pools", "simpol"], "no pool 'simpol'; did you mean 'simpool'?"),
        (
            ["--pools", "gap", "--ablation"],
            "--pools and --ablation are different tournaments: choose one",
        ),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--lr", "0.1", "0.1"], "--lr needs different positive numbers"),
        (["--lr", "-1"], "--lr needs different positive numbers"),
        (["--epochs", "0"], "--epochs must be greater than 0, got 0"),
        (["--gamma", "-1"], "--gamma must be positive, got -1"),
        (["--resume"], "there is no tournament to resume"),
        (["--size", "64"], "give a --recipe"),
        (["--recipe", "simpool/resnet18-supervised", "--lr", "1", "2"], "with one --lr, got 2"),
        (["--recipe", "simpool/resnet50-dino"], "is not a recipe of cenote fit"),
        (["--pol", "gap"], "--pool"),
    ],
)
def test_sentences(
    tmp_path: Path,
    folders: Path,
    vit: list[str],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    base = vit[:4] if arguments[0] in ("--seeds", "--epochs") else vit
    assert main(["tournament", str(folders), "-o", str(tmp_path / "run"), *base, *arguments]) == 2
    err = capsys.readouterr().err
    assert sentence in err and "Traceback" not in err
    assert not (tmp_path / "run" / "plan.json").exists()


def test_one_class(
    tmp_path: Path, folders: Path, vit: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (folders / "b").rename(tmp_path / "elsewhere")
    assert main(["tournament", str(folders), "-o", str(tmp_path / "run"), *vit]) == 2
    assert folders.name in capsys.readouterr().err
