"""`cenote discover` as a user runs it: photographs without labels, a data set with boxes, a saved model, bad input."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from cenote.cli import main
from cenote.predict.discovery import METHODS
from tests.shared_data import shared_data


def discover(*argv: object) -> int:
    return main(["discover", *map(str, argv)])


def ball(path: Path, size: tuple[int, int] = (224, 160)) -> tuple[float, float, float, float]:
    image = Image.new("RGB", size, (70, 140, 60))
    x, y, r = size[0] * 0.6, size[1] * 0.45, min(size) * 0.3
    ImageDraw.Draw(image).ellipse((x - r, y - r, x + r, y + r), fill=(240, 120, 20))
    image.save(path)
    return x - r, y - r, x + r, y + r


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    ball(folder / "ball.jpg")
    ball(folder / "more" / "ball.jpg", (160, 256))
    (folder / "broken.jpg").write_bytes((folder / "ball.jpg").read_bytes()[:300])
    return folder


def test_refined_maps_give_other_masks(tmp_path: Path) -> None:
    ball(tmp_path / "ball.png")
    masks = []
    for name, options in (("plain", []), ("refined", ["--refine"])):
        assert discover(tmp_path / "ball.png", "-o", tmp_path / name, *options) == 0
        (path,) = (tmp_path / name / "masks").glob("*.png")
        masks.append(np.asarray(Image.open(path)))
    assert masks[0].shape == masks[1].shape and (masks[0] != masks[1]).any()


def test_photographs_without_labels(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert discover(photos, "-o", out) == 1
    captured = capfd.readouterr()
    assert f"{photos / 'broken.jpg'}: " in captured.err
    assert "object map of what 2 images have in common" in captured.err
    assert captured.err.splitlines()[-1].startswith("cenote discover: 1 ")
    names = {path.name for path in out.iterdir()}
    assert names == {
        "boxes.json",
        "boxes.csv",
        "masks",
        "found.jpg",
        "results.json",
        "index.html",
        "page.json",
        "command.txt",
        ".lock",
    }, "the journal is removed"
    rows = list(csv.DictReader((out / "boxes.csv").open(encoding="utf-8")))
    images = json.loads((out / "boxes.json").read_text())["images"]
    assert [Path(row["file"]).name for row in rows] == ["ball.jpg", "ball.jpg"]
    assert [Path(image["file_name"]).name for image in images] == ["ball.jpg", "ball.jpg"]
    for row, name in zip(rows, ("ball", "more-ball"), strict=True):
        mask = np.asarray(Image.open(out / "masks" / f"{name}.png"))
        assert mask.shape == (int(row["height"]), int(row["width"]))
        ys, xs = np.nonzero(mask)
        box = [int(row[key]) for key in ("x1", "y1", "x2", "y2")]
        assert np.abs(np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]) - box).max() <= 1
    assert "object map" in json.loads((out / "results.json").read_text())["object_map"]


def test_methods_are_compared_by_true_boxes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "data", tmp_path / "out"
    folder.mkdir()
    lines = ["file,x1,y1,x2,y2"]
    for i in range(3):
        lines.append(
            ",".join(map(str, [f"{i}.png", *ball(folder / f"{i}.png", (224, 160 + 32 * i))]))
        )
    (folder / "annotations.csv").write_text("\n".join(lines) + "\n")
    assert (
        discover(
            folder, "-o", out, "--method", "lost, tokencut,,dinoseg", "--size", "320", "--json"
        )
        == 0
    )
    report = json.loads(capfd.readouterr().out)
    assert report["images"] == 3 and set(report["methods"]) == {
        "lost",
        "tokencut",
        "dinoseg",
        "centre",
    }
    for name in ("lost", "tokencut", "dinoseg"):
        assert (out / name / "boxes.json").exists() and len(
            list((out / name / "masks").iterdir())
        ) == 3
        Image.open(out / f"discover_{name}.jpg").load()
    assert discover(folder, "-o", tmp_path / "one", "--method", "lost") == 0
    text = capfd.readouterr().out
    assert "3 images" in text and "LOST" in text


def test_a_saved_model(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from cenote.models import create_model, save_model

    save_model(create_model("lite0", "simpool", 2, pretrained=True), tmp_path / "run")
    options = ["--model", tmp_path / "run", "--method", "all", "-o", tmp_path / "out"]
    assert discover(photos / "ball.jpg", *options) == 0, capfd.readouterr().err
    report = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (report["keys"], report["attention"]) == ("pool", "pool")


def test_pictures_that_it_wrote_are_not_photographs(photos: Path) -> None:
    (photos / "broken.jpg").unlink()
    for _ in range(2):
        assert discover(photos, "-o", photos) == 0
        assert len(json.loads((photos / "boxes.json").read_text())["images"]) == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--method", "tokncut"], "no method 'tokncut'; did you mean 'tokencut'?"),
        (["--method", " , "], "no method is named: "),
        (["--backbone", "resnet5"], "no backbone 'resnet5'; did you mean"),
        (["--model", "none"], "no such model folder: none"),
        (["--size", "3"], "from 32 (one patch) to 4096 pixels"),
        (
            ["--keys", "block", "--method", "lost"],
            "no attention over all patches was seen in 'lite0'",
        ),
        (["--head", "9", "--method", "dinoseg"], "counted from 0: got --head 9"),
    ],
)
def test_sentences(
    photos: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    options: list[str],
    sentence: str,
) -> None:
    assert discover(photos / "ball.jpg", "-o", tmp_path / "out", *options) == 2
    error = capfd.readouterr().err
    assert sentence in error and "Traceback" not in error
    assert not (tmp_path / "out").exists()  # wrong input leaves nothing behind


def test_out_that_is_a_file(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("mine")
    for out in (tmp_path / "out", tmp_path / "out" / "deeper"):
        assert discover(photos / "ball.jpg", "-o", out) == 2
        assert f"-o {tmp_path / 'out'}" in capfd.readouterr().err
    assert (tmp_path / "out").read_text() == "mine"


def test_an_interrupted_run_resumes(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (photos / "broken.jpg").unlink()
    for name in ("b.jpg", "c.jpg"):
        ball(photos / name)
    seen: list[int] = []
    plain = METHODS["lost"]

    def counting(patches: Any) -> Any:
        seen.append(patches.position)
        if stop and len(seen) == 3:
            raise KeyboardInterrupt
        return plain.find(patches)

    monkeypatch.setitem(METHODS, "lost", replace(plain, find=counting))
    stop = True
    assert discover(photos, "-o", tmp_path / "out", "--method", "lost") == 130
    stop = False
    assert discover(photos, "-o", tmp_path / "out", "--method", "lost") == 0
    assert seen == [0, 1, 2, 0, 1]  # the third of four is the first that is left
    assert len(json.loads((tmp_path / "out" / "boxes.json").read_text())["images"]) == 4


def test_a_changed_file_invalidates_saved_progress(photos: Path, tmp_path: Path) -> None:
    """A photograph that was repaired is processed again, and so are unreadable ones at the end of the journal."""
    import torch

    from cenote.data.loading import UnreadableImage
    from cenote.data.sources import open_photographs
    from cenote.predict.discovery import DiscoveredObjects, DiscoveryResult, from_json
    from cenote.predict.progress_file import ProgressFile, run_digest

    def name() -> str:
        return run_digest(
            torch.nn.Linear(1, 1, False).requires_grad_(False), open_photographs([str(photos)], [])
        )

    torch.manual_seed(0)
    before = name()
    torch.manual_seed(0)
    assert name() == before
    ball(photos / "broken.jpg")
    torch.manual_seed(0)
    assert name() != before
    result = DiscoveryResult(0, (4, 4), {"lost": DiscoveredObjects(np.zeros((0, 4)), [])})
    lines = [
        result,
        UnreadableImage(1, "gone"),
        result._replace(position=2),
        UnreadableImage(3, "gone"),
        UnreadableImage(4, "gone"),
    ]
    images = open_photographs([str(photos)], []).select([0] * 5)
    file = tmp_path / "progress"
    list(ProgressFile(file, "run", from_json).resume(images, lambda _: iter(lines)))
    progress = ProgressFile(file, "run", from_json)
    again = list(progress.resume(images, lambda missing: iter([result] * len(missing))))
    assert (
        progress.done == 3
        and [line.position for line in again] == [0, 1, 2, 3, 3]
        and again[1] == lines[1]
    )


def test_nothing_to_look_at(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in (tmp_path / "*.jpg", photos / "broken.jpg"):
        assert discover(path, "-o", tmp_path / "out") == 2
        assert str(path) in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "method"),
    [
        (["--head", "1"], "dinoseg"),
        (["--keys", "map"], "lost"),
        (["--centre"], "tokencut"),
        (["--pad"], "lost"),
        (["--refine", "--method", "lost"], "object"),
    ],
)
def test_an_option_that_no_method_uses_is_refused(
    photos: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    options: list[str],
    method: str,
) -> None:
    assert discover(photos, "-o", tmp_path / "out", *options) == 2
    error = capfd.readouterr().err
    assert options[0] in error and method in error


def test_it_finds_real_birds(tmp_path: Path) -> None:
    """The default is right on more than half of the photographs."""
    rows = list(csv.DictReader((shared_data("cub") / "annotations.csv").open()))[::75]
    with (tmp_path / "birds.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "x1", "y1", "x2", "y2"])
        writer.writerows(
            [str(shared_data("cub") / row["file"]), *(row[k] for k in ("x1", "y1", "x2", "y2"))]
            for row in rows
        )
    assert discover(tmp_path / "birds.csv", "-o", tmp_path / "out") == 0
    report = json.loads((tmp_path / "out" / "results.json").read_text())
    assert report["images"] == 16 and report["methods"]["object"]["corloc"] > 50, report["methods"]
