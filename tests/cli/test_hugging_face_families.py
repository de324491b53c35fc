"""The commands take models of transformers by nothing but hf:FOLDER; weights are random."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("transformers")

import cenote
from cenote.cli import main
from cenote.models.export import SUFFIXES
from tests.backbones.test_hugging_face import MODELS, write

QUICK = ["--epochs", 1, "--batch", 8, "--lr", 1e-3]
WITH_OWN_MAP = {  # the map of its own pooling: of an attention pool, or of CLS
    "vit": "cls",
    "dinov2": "cls",
    "dinov2_with_registers": "cls",
    "dinov3_vit": "cls",
    "clip_vision_model": "cls",
    "siglip_vision_model": "pool",
    "siglip2_vision_model": "pool",
}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of six images."""
    rng = np.random.default_rng(0)
    for name, brightness in (("a", 50), ("b", 0)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(6):
            pixels = rng.integers(0, 200, (40, 50, 3)) + brightness
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path / "photos"


def run(*argv: object) -> None:
    assert main([str(word) for word in argv]) == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MODELS)
def test_every_command_takes_it_by_its_name(
    name: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "model", name)
    backbone = ["--backbone", f"hf:{tmp_path / 'model'}"]
    photo = photos / "a" / "0.png"
    run("attend", photo, "-o", tmp_path / "maps", *backbone)
    if name in WITH_OWN_MAP:
        capsys.readouterr()
        run("attend", photo, "-o", tmp_path / "own", "--map", "own", *backbone)
        assert f"{WITH_OWN_MAP[name]} map" in capsys.readouterr().out
    pools = ["own", "simpool"]
    run(
        "tournament",
        photos,
        "-o",
        tmp_path / "t",
        "--seeds",
        1,
        "--pools",
        *pools,
        *QUICK,
        *backbone,
    )
    run("fit", photos, "--freeze", "-o", tmp_path / "run", "--epochs", 1, *backbone)
    assert cenote.load(tmp_path / "run").backbone.name == f"transformers.{name}"
    run("index", photos, "-o", tmp_path / "index", *backbone)
    run("search", tmp_path / "index", "--image", photo, "--top", 3)
    for format, suffix in SUFFIXES.items():
        run("export", "-o", tmp_path / f"model{suffix}", "--format", format, *backbone)
