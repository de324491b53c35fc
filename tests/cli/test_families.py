"""The commands take DINOv3, SigLIP 2, PE and others by nothing but their name and a local file.

The weights are random: what is tested is that every command takes the model, with which pool.
"""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

import cenote
from cenote.backbones import create_backbone
from cenote.cli import main
from cenote.models.export import SUFFIXES
from cenote.models.own import default_pool
from cenote.unit import unit

# The smallest architecture of each family, its own pooling, and the map of it.
FAMILIES = {
    "vit_tiny_patch16_dinov3_qkvb": ("gap", "cls"),
    "vit_base_patch32_siglip_256": ("own", "pool"),  # the architecture of SigLIP 2 B/32
    "vit_pe_core_tiny_patch16_384": ("own", "pool"),
}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of eight images."""
    rng = np.random.default_rng(0)
    for name in "ab":
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(8):
            pixels = rng.integers(0, 200, (40, 50, 3), np.uint8) + (50 if name == "a" else 0)
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path / "photos"


@pytest.fixture
def weights(tmp_path: Path) -> Callable[..., Path]:
    def save(name: str, **options: Any) -> Path:
        torch.manual_seed(0)
        save_file(timm.create_model(name, **options).state_dict(), tmp_path / f"{name}.safetensors")
        return tmp_path / f"{name}.safetensors"

    return save


def run(*argv: object) -> None:
    assert main([str(word) for word in argv]) == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_command_takes_it_by_its_name(
    name: str,
    photos: Path,
    weights: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pool, kind = FAMILIES[name]
    file = weights(name)
    backbone = ["--backbone", name, "--weights", file]
    maps = (("object", []), (kind, ["--map", "own"]), (kind, ["--pool", "own"]))
    for number, (map, options) in enumerate(maps):
        folder = tmp_path / f"maps-{number}"
        run("attend", photos / "a" / "0.png", "-o", folder, *backbone, *options)
        assert f"{map} map" in capsys.readouterr().out

    pools = ["own", "cls"] if kind == "cls" else ["own", "gap"]
    quick = ["--seeds", 1, "--epochs", 1, "--batch", 8, "--lr", 1e-3]
    run("tournament", photos, "-o", tmp_path / "t", "--pools", *pools, *quick, *backbone)
    rows = json.loads((tmp_path / "t" / "results.json").read_text())["standings"]
    own = {"own", "own (frozen)"} if pool == "own" else {pool, "cls", "ep [CLS; patches]"}
    assert {row["name"] for row in rows} >= own

    run("fit", photos, "--freeze", "-o", tmp_path / "run", "--epochs", 1, *backbone)
    assert cenote.load(tmp_path / "run").backbone.name == name

    for number, options in enumerate((["--model", tmp_path / "run"], backbone)):
        index = tmp_path / f"index-{number}"
        run("index", photos, "-o", index, *options)
        capsys.readouterr()
        run("search", index, "--image", photos / "a" / "0.png", "--top", 3, "--json")
        assert len(json.loads(capsys.readouterr().out)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("format", ["onnx", "torch"])
@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_exported_by_its_name(
    name: str,
    format: str,
    weights: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--backbone", name, "--weights", weights(name), "--format", format]
    run("export", "-o", tmp_path / f"model{SUFFIXES[format]}", *options)
    out = capsys.readouterr().out
    assert "images (batch, 3, height, width)" in out and "embedding (batch, " in out
    assert ("map (batch" in out) == (FAMILIES[name][1] == "pool")


@pytest.mark.parametrize(
    ("name", "options", "pool"),
    [
        ("test_vit", {}, "cls"),
        ("test_vit3", {}, "own"),  # an attention pool, as SigLIP and PE
        ("test_resnet", {}, "gap"),
        ("test_byobnet", {"head_type": "attn_abs", "img_size": 64}, "own"),  # as CLIP's ResNets
        ("vit_tiny_patch16_dinov3_qkvb", {"depth": 1, "embed_dim": 48, "num_heads": 3}, "gap"),
        ("efficientvim_m1", {}, "own"),  # of several feature maps
    ],
)
def test_the_default_pool_is_the_encoders_own(
    name: str, options: dict[str, Any], pool: str
) -> None:
    default = default_pool(create_backbone(name, **options))
    assert (default if isinstance(default, str) else default.name) == pool


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("dinov3_vits16", "vit_small_patch16_dinov3"),
        ("siglip2", "_siglip_"),
        ("facebook/dinov2-small", "'hf:facebook/dinov2-small'"),
    ],
)
def test_the_name_of_a_family_leads_to_timms_names(name: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=f"no backbone '{name}'.*{remedy}"):
        create_backbone(name)


def test_a_backbone_makes_an_index_for_search_by_image(
    photos: Path,
    weights: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = weights("test_vit3")
    index, model = tmp_path / "ix", f"timm/test_vit3/{file}"
    run("index", photos, "-o", index, "--backbone", "test_vit3", "--weights", file)
    run("index", photos, "-o", index, "--model", model)  # the name that the index stores
    assert "16 unchanged" in capsys.readouterr().out.splitlines()[-1]
    capsys.readouterr()
    query = photos / "a" / "0.png"
    run("search", index, "--image", query, "--top", 15, "--json", "--near-duplicates", "show")
    rows = json.loads(capsys.readouterr().out)
    # The vectors are those of `cenote embed`, with the same default pool.
    run("embed", photos, "-o", tmp_path / "v.npy", "--model", "test_vit3", "--weights", file)
    vectors = unit(torch.from_numpy(np.load(tmp_path / "v.npy")))
    with (tmp_path / "v.csv").open(encoding="utf-8") as table:
        paths = [str(Path(row["file"]).absolute()) for row in csv.DictReader(table)]
    cosines = dict(zip(paths, (vectors @ vectors[paths.index(str(query))]).tolist(), strict=True))
    assert len(rows) == 15
    for row in rows:
        assert row["score"] == pytest.approx(cosines[row["path"]], abs=1e-4)
    other = ["index", photos, "-o", tmp_path / "i", "--backbone"]
    for argv, sentence in (
        ([*other, "test_vit33", "--weights", file], "did you mean 'test_vit3'"),
        ([*other, "test_vit3", "--weights", f"{file}s"], "no such weights file"),
        ([*other, "test_vit3", "--model", "text-space"], "either --model or --backbone"),
        ([*other[:-1], "--weights", file], "--backbone NAME"),
        (["search", index, "--text", "a cat"], "search by image"),
        (["index", photos, "-o", index, "--model", "text-space"], "name another index"),
        (["index", photos, "-o", tmp_path / "i", "--model", "test_vit3"], "'timm/test_vit3'"),
        (["index", photos, "-o", tmp_path / "i", "--model", model, "--words", query], "--words"),
        (["index", photos, "-o", tmp_path / "i", "--model", "timm/test_vit33"], "'test_vit3'"),
    ):
        assert main([str(word) for word in argv]) == 2
        assert sentence in capsys.readouterr().err


def test_a_projection_to_texts_is_not_a_classifier(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """timm has it in the classifier's place; weights that were fine-tuned on ImageNet do have one."""
    small = {"depth": 1, "embed_dim": 48, "num_heads": 3}
    for name, classes in (
        ("vit_base_patch32_clip_224.openai", 0),
        ("vit_pe_core_tiny_patch16_384", 0),
        ("vit_base_patch32_clip_224.openai_ft_in1k", 1000),
        ("vit_base_patch32_224", 1000),
    ):
        head = cenote.create_model(name, "own", **small).head
        assert (0 if head is None else head.classes) == classes

    # Weights with the projection, for an architecture whose first weights in timm have classes.
    torch.manual_seed(0)
    save_file(
        timm.create_model("resnet50_clip", num_classes=1024).state_dict(),
        tmp_path / "w.safetensors",
    )
    argv = ["predict", photos, "-o", tmp_path / "p.csv", "--model", "resnet50_clip", "--weights"]
    assert main([str(word) for word in [*argv, tmp_path / "w.safetensors"]]) == 2
    assert "has no classifier: train one with cenote fit" in capsys.readouterr().err


def test_evaluate_takes_a_backbone(
    photos: Path,
    weights: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """k-NN of its own pooling, among the images that a run would train on."""
    file = weights("test_vit3")
    run("evaluate", "test_vit3", photos, "--weights", file, "--on", "knn", "--json")
    results = json.loads(capsys.readouterr().out)
    assert results["split"] == "val" and results["images"] < 16
    for argv, sentence in (
        (["test_vit33", photos, "--on", "knn"], "did you mean 'test_vit3'"),
        (["test_vit3", photos], "--on knn"),
        ([tmp_path, photos, "--on", "knn", "--weights", file], "leave it out"),
    ):
        assert main(["evaluate", *map(str, argv)]) == 2
        assert sentence in capsys.readouterr().err
