"""examples/metric/pictures.py draws what runs have: all pictures of one with GSP on collages, fewer of another pool."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from cenote.data.synthetic import World, write_world
from cenote.models import create_model, save_model

SCRIPT = Path(__file__).parents[2] / "examples" / "metric" / "pictures.py"


def test_pictures_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    write_world(
        World.preset("collage", images=160, size=64),
        tmp_path / "tiles",
        jobs=1,
        progress=False,
    )
    for pool in ("gsp", "gap"):
        save_model(create_model("resnet_micro", pool, 0, embedding_dim=8), tmp_path / pool)
        told = {"options": {"loss": "multi-similarity", "loss_options": {"m": 0.5}}}
        (tmp_path / pool / "results.json").write_text(json.dumps(told))
    out = tmp_path / "out"
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "x",
            *(str(tmp_path / name) for name in ("gsp", "gap", "tiles")),
            "-o",
            str(out),
            "--collage",
        ],
    )
    monkeypatch.syspath_prepend(str(SCRIPT.parent))  # as `python pictures.py` does
    runpy.run_path(str(SCRIPT), run_name="__main__")
    names = [
        "collage.png",
        "histograms.png",
        "mu-gsp.png",
        "positivity-gap.png",
        "positivity-gsp.png",
    ]
    names.append("prototypes-gsp.png")
    assert sorted(path.name for path in out.iterdir()) == names
    assert all(Image.open(out / name).size[0] > 300 for name in names)
    lines = capsys.readouterr().out.splitlines()
    gsp, gap = ([line for line in lines if line.startswith(name)] for name in ("gsp: ", "gap: "))
    assert len(gsp) > len(gap) > 0, "only GSP predicts classes that it has not seen"
    shares = [float(match[1]) for line in gsp if (match := re.match(r"gsp: (\d+\.\d)% ", line))]
    assert len(shares) == 1 and 15 < shares[0] < 40, (
        "untrained, it looks everywhere: a tile is a quarter"
    )
