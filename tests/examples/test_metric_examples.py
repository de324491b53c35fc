"""The examples about metric learning draw and print what a run has learned."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from cenote.cli import main
from cenote.data.synthetic import World, write_world
from cenote.models import create_model, save_model

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return an untrained model with GSP; collages are in the folder `tiles`."""
    torch.manual_seed(0)
    world = World.preset("collage", images=160, size=64)
    write_world(world, tmp_path / "tiles", jobs=1, progress=False)
    save_model(create_model("resnet_micro", "gsp", 0, embedding_dim=8), tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("name", ["mixtures", "collages"])
def test_an_example_runs(
    name: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run.parent / "out"
    words = [name, str(run), str(run.parent / "tiles"), "-o", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    (picture,) = out.iterdir()
    assert picture.stem == name and Image.open(picture).size[0] > 300
    text = capsys.readouterr().out
    if name == "mixtures":
        clean, mixed = map(float, re.findall(r"\d\.\d+", text)[:2])
        assert mixed <= clean  # mixtures only add to what is near
    else:
        share = re.match(r"(\d+\.\d)% ", text)
        # Untrained, it looks everywhere: a tile is a quarter.
        assert share and 15 < float(share[1]) < 40 and "mu 0.9: MAP@R " in text


def test_zero_shot_prediction_draws_prototypes(run: Path) -> None:
    out = run.parent / "out"
    data = str(run.parent / "tiles")
    assert main(["evaluate", str(run), data, "--on", "zero-shot", "-o", str(out)]) == 0
    for name in ("histograms.png", "prototypes.png"):
        assert Image.open(out / name).size[0] > 300
