"""examples/metric/pictures.py draws what runs have: all pictures of one with GSP on collages, fewer of another pool."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
from PIL import Image

from cenote.data.world import World, write_world
from cenote.models import create_model, save_model

SCRIPT = Path(__file__).parents[2] / "examples" / "metric" / "pictures.py"


def test_pictures_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    write_world(World.preset("collage", images=160, size=64), tmp_path / "tiles")
    for pool in ("gsp", "gap"):
        save_model(create_model("resnet_micro", pool, 0, embedding_dim=8), tmp_path / pool)
        told = {"options": {"loss": "multi-similarity", "loss_options": {"m": 0.5}}}
        (tmp_path / pool / "results.json").write_text(json.dumps(told))
    out = tmp_path / "out"
    monkeypatch.setattr(
        sys, "argv", ["x", *(str(tmp_path / name) for name in ("gsp", "gap", "tiles")), "-o", str(out), "--collage"]
    )
    runpy.run_path(str(SCRIPT), run_name="__main__")
    names = ["collage.png", "histograms.png", "mu-gsp.png", "positivity-gap.png", "positivity-gsp.png"]
    names.append("prototypes-gsp.png")
    assert sorted(path.name for path in out.iterdir()) == names
    assert all(Image.open(out / name).size[0] > 300 for name in names)
    told = capsys.readouterr().out
    assert "gsp: alignment" in told and "gap: alignment" in told and "utilization" in told
    assert "gsp: zero-shot prediction: l2" in told and "gap: zero-shot" not in told
    share = re.search(r"gsp: (\d+\.\d)% of the maps on the tile", told)
    assert share and 20 < float(share[1]) < 30, "untrained, it looks everywhere"
