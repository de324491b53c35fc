"""`cenote fit`, `evaluate` and `cache` as a user runs them: images in, a model out, sentences for mistakes."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import cenote
from cenote.cli import main
from cenote.data import open_dataset
from cenote.evaluate.splits import evaluation_splits


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes that are easy to tell apart, and one file that is not an image."""
    draw = np.random.default_rng(0)
    for split, count in {"train": 8, "test": 4}.items():
        for name, colour in {"blue": (20, 20, 220), "green": (20, 200, 20)}.items():
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = draw.integers(0, 60, (40, 48, 3)) + np.array(colour) * 0.7
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
    (tmp_path / "photos" / "train" / "blue" / "letter.jpg").write_text("not a picture")
    return tmp_path / "photos"


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_frozen(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert (
        run(
            "fit",
            photos,
            "--freeze",
            "-o",
            out,
            "--epochs",
            6,
            "--batch",
            4,
            "--lr",
            "0.003",
            "0.01",
        )
        == 0
    )
    printed = capsys.readouterr()
    report = json.loads((out / "results.json").read_text())
    assert report["test"]["accuracy"] >= 75 and set(report["rates"]) == {"0.003", "0.01"}
    assert "letter.jpg: " in printed.err
    assert f"{report['test']['accuracy']:.2f}% of 8 " in printed.out
    assert cenote.load(out).class_names == ["blue", "green"]
    assert (out / "object_map.safetensors").is_file()
    assert run("evaluate", out, photos, "--on", "classify,knn,linear", "--json") == 0
    judged = json.loads(capsys.readouterr().out)
    assert (
        min(judged["classify"]["accuracy"], judged["knn"]["knn_10"], judged["linear"]["linear"])
        >= 75
    )
    assert judged["images"] == 8 and judged["split"] == "test"
    assert run("fit", photos, "--freeze", "-o", out, "--epochs", 4) == 2
    assert str(out) in capsys.readouterr().err


def test_whole_and_resumed(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "fit",
        photos,
        "--scratch",
        "--backbone",
        "resnet_micro",
        "--pool",
        "gap",
        "--size",
        32,
        "--epochs",
        2,
    ]
    assert (
        run(*command, "--batch", 8, "-o", tmp_path / "run", "--settings", "ema=0.5", "most_bad=1")
        == 0
    )
    model = cenote.load(tmp_path / "run")
    assert model.backbone.preprocessing.size == 32
    assert run(*command, "--batch", 4, "-o", tmp_path / "run", "--resume") == 2
    assert re.search(r"\bbatch\b.*\b8\b.*\b4\b", capsys.readouterr().err)


def test_the_cache_is_listed_and_pruned(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("fit", photos, "--freeze", "-o", tmp_path / "run", "--epochs", 1, "--lr", "0.001")
    capsys.readouterr()
    assert run("cache") == 0
    assert "lite0 7x7x1280 float16" in capsys.readouterr().out
    assert run("cache", "--unused", 0) == 0 and "1 of 1" in capsys.readouterr().out
    assert run("cache", "--json") == 0 and json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (("--settings", "lrr=3"), "'--settings lrr'; did you mean 'lr'?"),
        (
            ("--settings", "lr=1e-3", "--pool-options", "gama=2", "--freeze"),
            "'simpool' has no option 'gama'",
        ),
        (("--settings", "clip"), "an option is KEY=VALUE, for example gamma=2; got 'clip'"),
        (("--freeze", "--scratch"), "freeze and scratch exclude each other"),
        (("--lr", "0.1", "0.2"), "several learning rates need --freeze"),
        (("--pool", "simpol", "--freeze"), "no pool 'simpol'; did you mean 'simpool'?"),
        (("--backbone", "resnet19", "--freeze"), "resnet19"),
        (("--epochs", "0"), "epochs must be greater than 0, got 0"),
        (
            ("--recipe", "simpool/vit-smal-supervised"),
            "did you mean 'simpool/vit-small-supervised'",
        ),
        (("--resume",), "does not exist: nothing can be resumed"),
    ],
)
def test_sentences(
    photos: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    assert run("fit", photos, "-o", tmp_path / "run", *arguments) in (1, 2)
    error = capsys.readouterr().err
    assert sentence in error and len(error.splitlines()) <= 2, error


def test_a_folder_without_splits_is_evaluated_on_held_out_images(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert (
        run(
            "fit",
            photos / "train",
            "--freeze",
            "-o",
            out,
            "--epochs",
            2,
            "--lr",
            "0.01",
            "--size",
            64,
        )
        == 0
    )
    assert cenote.load(out).backbone.preprocessing.size == 64
    capsys.readouterr()
    assert run("evaluate", out, photos / "train", "--on", "classify,knn", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["split"] == "val" and report["images"] == 4 and "knn_10" in report["knn"]
    assert run("evaluate", out, photos / "test", "--json") == 0  # other data: all of it
    assert json.loads(capsys.readouterr().out)["images"] == 8
    again = [
        "fit",
        photos / "train",
        "--freeze",
        "-o",
        out,
        "--epochs",
        2,
        "--lr",
        "0.01",
        "--resume",
    ]
    assert run(*again, "--size", 64, "--pool-options", "gamma=2") == 2
    assert re.search(r"\bpool_options\b.*\{'gamma': 2\}", capsys.readouterr().err)
    assert run(*again) == 2 and re.search(r"\bsize\b.*\b64\b", capsys.readouterr().err)


def test_data_without_enough_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(3):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{i}.png")
    assert run("fit", tmp_path, "--freeze", "-o", tmp_path / "run") == 2
    assert tmp_path.name in capsys.readouterr().err  # no classes
    for name in ("a", "b"):
        (tmp_path / "few" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "few" / name / "1.png")
    assert run("fit", tmp_path / "few", "--freeze", "-o", tmp_path / "run") == 2
    assert "few" in capsys.readouterr().err  # nothing to hold out
    (tmp_path / "list.csv").write_text(
        "file,label,split\nfew/a/1.png,a,mine\nfew/b/1.png,b,yours\n"
    )
    assert run("fit", tmp_path / "list.csv", "--freeze", "-o", tmp_path / "run") == 2
    assert "mine, yours" in capsys.readouterr().err  # no training split


def test_the_head_of_several_vectors_and_the_number_of_blocks(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = ("--epochs", 1, "--batch", 4)
    several = ("--pool", "simpool", "--pool-options", "k=2", "--combine", "concat")
    assert run("fit", photos, "--freeze", *several, *quick, "-o", tmp_path / "concat") == 0
    head = cenote.load(tmp_path / "concat").head
    assert head is not None and head.project is not None and head.project.in_features == 2 * 1280
    micro = ("--scratch", "--backbone", "vit_micro", "--size", 32)
    blocks = {}
    for depth in ("0", "-2"):
        out = tmp_path / f"depth{depth}"
        assert run("fit", photos, *micro, "--depth", depth, *quick, "-o", out) == 0
        blocks[depth] = len(cenote.load(out).backbone.model.blocks)  # type: ignore[arg-type]
    assert blocks["-2"] == blocks["0"] - 2
    capsys.readouterr()
    assert run("fit", photos, "--freeze", "--depth", 1, *quick, "-o", tmp_path / "x") == 2
    assert "--depth excludes --freeze" in capsys.readouterr().err
    for pool in ("gap", "cls", "simpool"):
        concat = ("--pool", pool, "--combine", "concat", "-o", tmp_path / "x")
        assert run("fit", photos, *micro, *concat, *quick) == 2
        assert f"several vectors, '{pool}' makes one" in capsys.readouterr().err


def test_models_of_chosen_epochs_are_kept(photos: Path, tmp_path: Path) -> None:
    out, micro = tmp_path / "run", ("--backbone", "resnet_micro", "--scratch", "--size", 64)
    keep = ("--epochs", 3, "--keep-epochs", "1,2,3", "--batch", 4)
    assert run("fit", photos, *micro, *keep, "--settings", "ema=0.5", "-o", out) == 0
    best = json.loads((out / "results.json").read_text())["epoch"]
    states = [cenote.load(out / f"epoch-{n}").state_dict() for n in (1, 2, 3)]
    for name, value in cenote.load(out).state_dict().items():
        torch.testing.assert_close(states[best - 1][name], value)
    first, last = states[0]["head.linear.weight"], states[2]["head.linear.weight"]
    assert not torch.equal(first, last)
    data = open_dataset(str(photos))
    splits = [evaluation_splits(folder, data) for folder in (out, out / "epoch-1")]
    assert splits[0].train is not None and splits[1].train is not None
    assert splits[0].train.rows.tolist() == splits[1].train.rows.tolist()
