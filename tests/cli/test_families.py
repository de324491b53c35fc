"""The commands take DINOv3, SigLIP 2, PE and others by nothing but their name and a local file.

The weights are random: what is tested is that every command takes the model, with which pool.
"""

import csv
import json
import logging
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
    for map, options in (("object", []), (kind, ["--pool", "own"])):
        run("attend", photos / "a" / "0.png", "-o", tmp_path / "maps", *backbone, *options)
        assert f"{map} map" in capsys.readouterr().out

    pools = ["own", "cls"] if kind == "cls" else ["own", "gap"]
    quick = ["--seeds", 1, "--epochs", 1, "--batch", 8, "--lr", 1e-3]
    run("tournament", photos, "-o", tmp_path / "t", "--pools", *pools, *quick, *backbone)
    rows = json.loads((tmp_path / "t" / "results.json").read_text())["standings"]
    own = {"own", "own (frozen)"} if pool == "own" else {pool, "cls", "ep [CLS; patches]"}
    assert {row["name"] for row in rows} >= own

    run("fit", photos, "--freeze", "-o", tmp_path / "run", "--epochs", 1, *backbone)
    assert cenote.load(tmp_path / "run").backbone.name == name

    for model in (tmp_path / "run", f"timm/{name}/{file}"):
        index = tmp_path / f"index-{Path(model).stem}"
        run("index", photos, "-o", index, "--model", model)
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
    run("export", "-o", tmp_path / "model", *options)
    out = capsys.readouterr().out
    # The classifier that timm gives PE is the projection to the space of its texts.
    output = "logits (batch, 512)" if "_pe_" in name else "embedding (batch, "
    assert "images (batch, 3, height, width)" in out and output in out
    assert ("map (batch" in out) == (FAMILIES[name][1] == "pool")


@pytest.mark.parametrize(
    ("name", "options", "pool"),
    [
        ("test_vit", {}, "cls"),
        ("test_vit3", {}, "own"),  # an attention pool, as SigLIP and PE
        ("test_resnet", {}, "gap"),
        ("test_byobnet", {"head_type": "attn_abs", "img_size": 64}, "own"),  # as CLIP's ResNets
        ("vit_tiny_patch16_dinov3_qkvb", {"depth": 1, "embed_dim": 48, "num_heads": 3}, "gap"),
        ("crossvit_tiny_240", {"embed_dim": (24, 48), "depth": ((1, 1, 0),) * 3}, "cls"),
        ("efficientvim_m1", {}, "gap"),
    ],
)
def test_the_default_pool(
    name: str, options: dict[str, Any], pool: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The encoder's own; where that reads several feature maps, CLS, else the average."""
    caplog.set_level(logging.INFO)
    default = default_pool(create_backbone(name, **options))
    assert (default if isinstance(default, str) else default.name) == pool
    is_refused = name.startswith(("crossvit", "efficientvim"))
    assert (f"use the pool '{pool}'" in caplog.text) == is_refused


def test_a_backbone_makes_an_index_for_search_by_image(
    photos: Path,
    weights: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = weights("test_vit3")
    index, model = tmp_path / "ix", f"timm/test_vit3/{file}"
    run("index", photos, "-o", index, "--model", model)
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
    for argv, sentence in (
        (["search", index, "--text", "a cat"], "search by image"),
        (["index", photos, "-o", index, "--model", "text-space"], "name another index"),
        (["index", photos, "-o", tmp_path / "i", "--model", "test_vit3"], "'timm/test_vit3'"),
        (["index", photos, "-o", tmp_path / "i", "--model", model, "--words", query], "--words"),
        (["index", photos, "-o", tmp_path / "i", "--model", "timm/test_vit33"], "'test_vit3'"),
    ):
        assert main([str(word) for word in argv]) == 2
        assert sentence in capsys.readouterr().err
