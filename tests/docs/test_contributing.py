"""The pool of CONTRIBUTING.md, put into a copy of the package as a contributor would, works in every command."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from cenote.backbones import create_backbone
from tests.docs.reading import ROOT, python_blocks
from tests.web.conftest import serve


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of cenote/ that has one more pool."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(
        ROOT / "cenote", folder / "cenote", ignore=shutil.ignore_patterns("__pycache__")
    )
    (example,) = python_blocks(ROOT / "CONTRIBUTING.md")
    (folder / "cenote" / "pooling" / "focus.py").write_text(example)
    return folder


CHECK = """
import cenote, torch
pool, x = cenote.create_pool("focus", 8, tau=0.5), torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(0))
u, a = pool.attend(x, grid=(2, 3))
for image, vector, weights in zip(x, u, a):
    cosines = torch.stack([torch.cosine_similarity(image.mean(0), token, dim=0) for token in image])
    torch.testing.assert_close(weights.flatten(), (cosines / 0.5).softmax(0))
    torch.testing.assert_close(vector, sum(w * token for w, token in zip(weights.flatten(), image)))
print(cenote.landscape())
"""
TOURNAMENT = (
    "tournament photos -o run --pools focus gap --backbone vit_micro --weights vit.safetensors "
    "--epochs 1 --seeds 1"
)


@pytest.fixture(scope="module")
def output(package: Path) -> str:
    """What a Python with that package prints: it checks what the pool computes, then runs a tournament with it."""
    rng = np.random.default_rng(0)
    for label, brightness in (("dark", 0), ("light", 55)):
        (package / "photos" / label).mkdir(parents=True)
        for i in range(8):
            pixels = rng.integers(0, 200, (40, 50, 3)) + brightness
            Image.fromarray(pixels.astype(np.uint8)).save(package / "photos" / label / f"{i}.png")
    torch.manual_seed(0)
    save_file(create_backbone("vit_micro").model.state_dict(), package / "vit.safetensors")
    program = f"{CHECK}\nfrom cenote.cli import main\nassert main({TOURNAMENT.split()!r}) == 0"
    environment = {**os.environ, "PYTHONPATH": str(package), "CENOTE_CACHE": str(package / "cache")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=package, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_computes_what_its_docstring_says_and_is_in_the_landscape(output: str) -> None:
    assert "Focus" in output


def test_it_enters_the_tournament_and_the_page(package: Path, output: str) -> None:
    report = json.loads((package / "run" / "results.json").read_text())
    assert {row["name"]: row["group"] for row in report["standings"]} == {
        "focus": "group 9",
        "gap": "simple",
    }
    server = serve(package, "run", root=package)
    try:
        with server.client() as client:
            assert "focus" in client.get("/api/about").raise_for_status().text
            rows = client.get("/api/tournament").raise_for_status().json()["contenders"]
            assert {row["name"]: row["group"] for row in rows} == {
                "focus": "group 9",
                "gap": "simple",
            }
    finally:
        server.stop()
