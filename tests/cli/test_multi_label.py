"""Images with several classes as a user meets them: fit, evaluate, localize."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import cenote
from cenote.cli import main

COLOURS = {"blue": (20, 20, 230), "green": (20, 200, 20), "red": (230, 20, 20)}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """COCO's layout: up to three coloured squares in the corners of grey images."""
    root, rng = tmp_path_factory.mktemp("scenes"), np.random.default_rng(0)
    (root / "annotations").mkdir()
    (root / "images").mkdir()
    images, boxes = [], []
    for i in range(48):
        pixels = rng.integers(90, 150, (96, 96, 3))
        corners = rng.permutation(4)
        for c, colour in enumerate(COLOURS.values()):
            if rng.random() < 0.5:
                x, y = (8 + 48 * int(corners[c] % 2), 8 + 48 * int(corners[c] // 2))
                pixels[y : y + 32, x : x + 32] = colour
                box = {"id": len(boxes), "image_id": i, "category_id": c, "bbox": [x, y, 32, 32]}
                boxes.append(box)
        Image.fromarray(pixels.astype(np.uint8)).save(root / "images" / f"{i}.png")
        images.append({"id": i, "file_name": f"{i}.png", "width": 96, "height": 96})
    categories = [{"id": c, "name": name} for c, name in enumerate(COLOURS)]
    content = {"images": images, "annotations": boxes, "categories": categories}
    (root / "annotations" / "instances_all.json").write_text(json.dumps(content))
    return root


@pytest.fixture(scope="module")
def trained(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    settings = ("--epochs", "8", "--batch", "16", "--lr", "0.01", "--pool", "gap")
    assert main(["fit", str(scenes), "--freeze", "-o", str(out), *settings]) == 0
    return out


def test_fit(trained: Path) -> None:
    report = json.loads((trained / "results.json").read_text())
    assert report["val"]["mAP"] > 80 and "accuracy" not in report["val"]
    model = cenote.load(trained)
    assert model.multi_label and model.class_names == list(COLOURS)
    assert json.loads((trained / "config.json").read_text())["multi_label"] is True


def test_fit_all_weights(scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ("--scratch", "--backbone", "resnet_micro", "--pool", "gap", "--size", "32")
    settings = ("--epochs", "2", "--batch", "16", "--settings", "mixup=0.2", "smoothing=0.1")
    command = ["fit", str(scenes), "-o", str(tmp_path / "run"), *model, *settings]
    assert main(command) == 0
    printed = capsys.readouterr().out
    report = json.loads((tmp_path / "run" / "results.json").read_text())
    assert f"mAP {report['val']['mAP']:.2f} on {report['val']['images']} val images" in printed
