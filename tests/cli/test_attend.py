"""`cenote attend` as a user runs it: real processes on real files, good and bad."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from cenote.cli import main

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("CENOTE_SHARED_DATA", ROOT.parent / "shared" / "data"))
SMALL = ["--size", "128"]  # a 4 x 4 map is enough to see the command work


def run(*argv: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cenote", "attend", *map(str, argv)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=env, cwd=cwd, timeout=150)


def ball(size: tuple[int, int] = (160, 120)) -> Image.Image:
    image = Image.new("RGB", size, (70, 140, 60))
    x, y, r = size[0] * 0.7, size[1] * 0.4, min(size) * 0.25
    ImageDraw.Draw(image).ellipse((x - r, y - r, x + r, y + r), fill=(240, 120, 20))
    return image


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    (folder / "more").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    ball().save(folder / "ball.jpg")
    ball((90, 200)).save(folder / "more" / "ball.jpg")  # the same name, another photograph
    ball().save(folder / "turned.jpg", exif=exif)
    ball().convert("CMYK").save(folder / "print.jpg")
    (folder / "broken.jpg").write_bytes((folder / "ball.jpg").read_bytes()[:300])
    return folder


@pytest.fixture(scope="module")
def done(photos: Path) -> tuple[subprocess.CompletedProcess[str], Path]:
    out = photos.parent / "out of photos"
    return run(photos, "-o", out, *SMALL), out


GOOD = ["ball.jpg", "ball.jpg", "print.jpg", "turned.jpg"]


def test_a_broken_photograph_is_named_and_the_others_are_done(
    photos: Path, done: tuple[subprocess.CompletedProcess[str], Path]
) -> None:
    process, out = done
    assert process.returncode == 1, process.stderr
    first, last = process.stderr.splitlines()  # and no progress bar where nobody watches
    assert first.startswith(f"skipped {photos / 'broken.jpg'}: damaged or unreadable")
    assert last == "cenote attend: 1 failed, see above"
    assert process.stdout.startswith(f"4 photographs: {out / 'contact_sheet.jpg'}")


def test_the_folder_holds_what_was_promised(photos: Path, done: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    _, out = done
    names = ("ball", "more-ball", "print", "turned")
    pictures = {f"{name}.{kind}.jpg" for name in names for kind in ("overlay", "mask", "box")}
    tables = {"contact_sheet.jpg", "attention.npz", "attention.json", "attention.csv"}
    assert {path.name for path in out.iterdir()} == pictures | tables
    for name in pictures:
        Image.open(out / name).load()
    report = json.loads((out / "attention.json").read_text())
    assert (report["backbone"], report["pool"], report["map"]) == ("lite0", "gap", "cam")
    assert [Path(row["file"]).name for row in report["photographs"]] == GOOD
    assert [Path(row["file"]).name for row in report["failed"]] == ["broken.jpg"]
    sizes = {row["pictures"]["box"]: (row["width"], row["height"]) for row in report["photographs"]}
    assert sizes["turned.box.jpg"] == (120, 160) and sizes["more-ball.box.jpg"] == (90, 200)
    for row in report["photographs"]:
        x0, y0, x1, y1 = row["box"]
        assert 0 <= x0 < x1 <= row["width"] and 0 <= y0 < y1 <= row["height"]
        assert row["class"] and 0 < row["score"] <= 1
    rows = list(csv.DictReader((out / "attention.csv").open(encoding="utf-8")))
    assert [row["class"] for row in rows] == [row["class"] for row in report["photographs"]]
    assert [int(row["x1"]) for row in rows] == [row["box"][2] for row in report["photographs"]]
    with np.load(out / "attention.npz", allow_pickle=False) as data:
        assert data["maps"].shape[:2] == (4, 1) and np.isfinite(data["maps"]).all()
        assert data["boxes"].tolist() == [row["box"] for row in report["photographs"]]
        assert data["files"].tolist() == [row["file"] for row in report["photographs"]]


def test_a_second_run_gives_the_same_and_a_glob_works(
    photos: Path, done: tuple[subprocess.CompletedProcess[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    _, out = done
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    good = [str(photos / "b*l.jpg"), str(photos / "more"), str(photos / "print.jpg"), str(photos / "turned.jpg")]
    assert main(["attend", *good, "-o", str(out), *SMALL]) == 0
    assert capfd.readouterr().err == ""
    after = {path.name: path.read_bytes() for path in out.iterdir()}
    assert after.keys() == before.keys()
    assert all(after[name] == before[name] for name in after if name.endswith(("box.jpg", "attention.csv")))


def test_an_untrained_pool_says_so(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = main(["attend", str(photos / "ball.jpg"), "-o", str(tmp_path), "--pool", "simpool", *SMALL])
    error = capfd.readouterr().err
    assert code == 0 and "weights of 'simpool' are untrained (random)" in error and len(error.splitlines()) == 1
    report = json.loads((tmp_path / "attention.json").read_text())
    assert report["map"] == "pool" and report["photographs"][0]["class"] is None


def test_a_saved_model(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from cenote.models import create_model, save_model

    model = create_model("lite0", "simpool", num_classes=2)
    model.class_names = ["ball", "no ball"]
    save_model(model, tmp_path / "model")
    options = ["--model", str(tmp_path / "model"), "-o", str(tmp_path / "out"), *SMALL]
    assert main(["attend", str(photos / "ball.jpg"), *options]) == 0, capfd.readouterr().err
    report = json.loads((tmp_path / "out" / "attention.json").read_text())
    assert report["photographs"][0]["class"] in ("ball", "no ball") and report["map"] == "pool"
    assert main(["attend", str(photos / "ball.jpg"), *options, "--pool", "gap"]) == 2
    assert "give --model alone" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--pool", "simpol"], "no pool 'simpol'; did you mean 'simpool'?"),
        (["--map", "camm"], "invalid choice"),
        (["--map", "cls"], "no CLS token"),
        (["--map", "pool"], "'gap' has no attention map of its own"),
        (["--backbone", "resnet5"], "no backbone 'resnet5'; did you mean"),
        (["--weights", "none.safetensors"], "no such weights file: none.safetensors"),
        (["--model", "none"], "no such model folder: none"),
        (["--share", "1.5"], "share is more than 0 and at most 1"),
        (["--size", "4"], "size is from 32"),
        (["--batch", "0"], "a batch holds at least one"),
        (["--head", "3"], "there is no map 3"),
        (["--bckbone", "lite0"], "--backbone"),
    ],
)
def test_wrong_input_is_a_sentence_and_leaves_nothing(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    assert main(["attend", str(photos / "ball.jpg"), "-o", str(tmp_path / "out"), *options]) == 2
    captured = capfd.readouterr()
    assert sentence in " ".join(captured.err.split()) and "Traceback" not in captured.err and not captured.out
    assert not (tmp_path / "out").exists()


def test_nothing_to_look_at(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for paths, sentence in [
        ([], "no photographs"),
        ([str(tmp_path)], f"{tmp_path}: no images in this folder"),
        ([str(tmp_path / "*.jpg")], "no such file"),
        ([str(photos / "broken.jpg")], "none of the 1 photographs could be used"),
    ]:
        assert main(["attend", *paths, "-o", str(tmp_path / "out"), *SMALL]) == 2
        assert sentence in capfd.readouterr().err
    assert not (tmp_path / "out" / "attention.json").exists()


def test_a_missing_path_does_not_stop_the_others(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = [str(photos / "ball.jpg"), str(tmp_path / "gone.jpg"), "-o", str(tmp_path / "out"), *SMALL]
    assert main(["attend", *argv]) == 1
    assert f"skipped {tmp_path / 'gone.jpg'}: no such file" in capfd.readouterr().err
    assert (tmp_path / "out" / "ball.overlay.jpg").exists()


def test_an_output_folder_that_is_a_file(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").touch()
    assert main(["attend", str(photos / "ball.jpg"), "-o", str(tmp_path / "out"), *SMALL]) == 2
    assert capfd.readouterr().err == f"cenote attend: File exists: {tmp_path / 'out'}\n"


@pytest.mark.skipif(not (DATA / "pets").is_dir(), reason="no pets: set CENOTE_SHARED_DATA")
def test_it_points_at_real_pets(tmp_path: Path) -> None:
    """The peak of the map lies on the animal, and the box shares more with it than the middle of the picture does."""
    rows = [row for row in csv.DictReader((DATA / "pets" / "annotations.csv").open()) if row["body_x1"]][::60]
    files = [str(DATA / "pets" / row["file"]) for row in rows]
    assert main(["attend", *files, "-o", str(tmp_path), "--share", "0.75"]) == 0
    data = np.load(tmp_path / "attention.npz")
    hits, overlaps = [], []
    for row, a, (height, width), size, box in zip(
        rows, data["maps"][:, 0], data["grids"], data["sizes"], data["boxes"], strict=True
    ):
        y, x = np.unravel_index(a[:height, :width].argmax(), (height, width))
        px, py = (x + 0.5) / width * size[0], (y + 0.5) / height * size[1]
        truth = [float(row[f"body_{k}"]) for k in ("x1", "y1", "x2", "y2")]
        hits.append(truth[0] <= px < truth[2] and truth[1] <= py < truth[3])
        overlaps.append(iou(box.tolist(), truth))
    assert np.mean(hits) > 0.85 and np.mean(overlaps) > 0.45


def iou(a: list[float], b: list[float]) -> float:
    shared = max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return shared / (sum(areas) - shared)
