"""Images with several classes as a user meets them: fit, evaluate, localize."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import cenote
from cenote.cli import main
from cenote.data import open_dataset, read_image
from cenote.data.coco import read_coco
from cenote.data.lists import read_list
from cenote.train.tournament.load import load_candidates

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


def test_evaluate(
    scenes: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", str(trained), str(scenes), "--on", "classify,localize"]
    assert main([*command, "-o", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    results = json.loads((tmp_path / "results.json").read_text())
    classes, boxes = results["classify"], results["localize"]
    report = json.loads((trained / "results.json").read_text())
    assert classes["mAP"] == pytest.approx(report["val"]["mAP"], abs=3)  # cached in two bytes
    assert classes["prior"] < 80 and set(classes["average_precision"]) == set(COLOURS)
    assert f"mAP {classes['mAP']:.2f}" in printed
    by_class = {entry["name"]: entry for entry in boxes["by_class"]}
    assert set(by_class) == set(COLOURS) and boxes["kind"] == "cam" and "accuracy" not in boxes
    assert sum(entry["images"] for entry in by_class.values()) == boxes["images_with_boxes"]
    right = sum(entry["images"] * entry["corloc"] for entry in by_class.values())
    share = boxes["oracle"]["max_box_acc"]["score"]  # the largest contour at IoU 0.5
    assert right / boxes["images"] == pytest.approx(share, abs=1)
    assert "CorLoc, the mean of 3 classes" in printed
    page = (tmp_path / "index.html").read_text()
    assert "CorLoc of each class" in page and "Average precision of each class" in page
    assert main(["evaluate", str(trained), str(scenes), "--on", "knn"]) == 2
    assert "knn needs one class per image" in capsys.readouterr().err


def test_a_model_of_one_class_per_image(scenes: Path, trained: Path, tmp_path: Path) -> None:
    """On images with several, boxes are evaluated for each of their classes, too."""
    shutil.copytree(trained, tmp_path / "run")
    config = json.loads((trained / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "multi_label": False}))
    command = ["evaluate", str(tmp_path / "run"), str(scenes), "--on", "localize", "--json"]
    assert main([*command, "-o", str(tmp_path / "out")]) == 0
    report = json.loads((tmp_path / "out" / "results.json").read_text())["localize"]
    assert {entry["name"] for entry in report["by_class"]} == set(COLOURS)


def test_localize(scenes: Path, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "boxes"
    photos = str(scenes / "images")
    assert main(["localize", str(trained), photos, "-o", str(out), "--format", "coco", "csv"]) == 0
    model = cenote.load(trained)
    dataset, lines = open_dataset(photos), read_list(out / "boxes.csv")
    assert len(lines) == len(dataset) == 48 and lines.multi_label
    transform = model.backbone.preprocessing.whole()
    for record in list(lines)[:6]:
        image = read_image(out / record.image)
        with torch.no_grad():
            probabilities = model(transform(image)[None])[0].sigmoid()
        names = [name for name, p in zip(COLOURS, probabilities, strict=True) if p >= 0.5]
        names = names or [list(COLOURS)[int(probabilities.argmax())]]
        assert set(record.labels or ()) == set(names) and len(record.boxes) == len(names)
    assert len(read_coco(out / "boxes.json")) == 48
    of_objects = [{box[:4] for box in record.boxes} for record in lines]
    assert max(map(len, of_objects)) > 1  # classes of one photograph have different boxes


def test_tournament(scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The score is the mAP; an image has boxes once for each of its classes."""
    command = ["tournament", str(scenes), "-o", str(tmp_path), "--pools", "gap", "max"]
    settings = ["--seeds", "2", "--epochs", "4", "--batch", "16", "--lr", "0.01"]
    assert main([*command, *settings]) == 0
    printed, report = capsys.readouterr().out, json.loads((tmp_path / "results.json").read_text())
    assert "mAP" in printed and "accuracy" not in printed.lower() and "k-NN" not in printed
    standings = {row["name"]: row for row in report["standings"]}
    assert min(standings["gap"]["accuracy"]) > 80 and report["metric"] == "mAP"
    assert report["box_images"] > report["images"] and cenote.load(tmp_path).multi_label
    assert all(model.multi_label for model in load_candidates(tmp_path).values())


def test_whole_networks_need_one_class_per_image(
    scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tournament", str(scenes), "-o", str(tmp_path / "run")]
    assert main([*command, "--recipe", "simpool/resnet18-supervised"]) == 2
    assert "one class per image" in capsys.readouterr().err
