"""`cenote attend` as a user runs it: real files, good and bad."""

import csv
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from cenote.cli import main
from cenote.models import create_model, save_model
from tests.shared_data import shared_data

SMALL = ["--size", "192"]  # a 12 x 12 map is enough to see the command work


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


class Done(NamedTuple):
    code: int
    text: str
    error: str
    out: Path


@pytest.fixture(scope="module")
def done(photos: Path) -> Done:
    out = photos.parent / "out of photos"
    with redirect_stdout(io.StringIO()) as text, redirect_stderr(io.StringIO()) as error:
        code = main(["attend", str(photos), "-o", str(out), *SMALL])
    return Done(code, text.getvalue(), error.getvalue(), out)


GOOD = ["ball.jpg", "ball.jpg", "print.jpg", "turned.jpg"]


def test_a_broken_photograph_is_named_and_the_others_are_done(photos: Path, done: Done) -> None:
    assert done.code == 1, done.error
    first, last = done.error.splitlines()  # and no progress bar, as this is not a terminal
    assert f"{photos / 'broken.jpg'}: " in first
    assert last.startswith("cenote attend: 1 ")
    assert done.text.startswith("4 ") and str(done.out / "contact_sheet.jpg") in done.text


def test_the_folder_has_all_files(photos: Path, done: Done) -> None:
    out = done.out
    names = ("ball", "more-ball", "print", "turned")
    pictures = {f"{name}.{kind}.jpg" for name in names for kind in ("overlay", "mask", "box")}
    tables = {"contact_sheet.jpg", "attention.npz", "attention.json", "attention.csv"}
    assert {path.name for path in out.iterdir()} == pictures | tables | {"command.txt", ".lock"}
    for name in pictures:
        Image.open(out / name).load()
    report = json.loads((out / "attention.json").read_text())
    assert (report["backbone"], report["pool"], report["map"]) == ("lite0", "gap", "object")
    assert report["description"] in done.text and "4 images" in report["description"]
    assert report["threshold"] == 0.5 and "share" not in report
    assert [Path(row["file"]).name for row in report["photographs"]] == GOOD
    assert [Path(row["file"]).name for row in report["failed"]] == ["broken.jpg"]
    sizes = {row["pictures"]["box"]: (row["width"], row["height"]) for row in report["photographs"]}
    assert sizes["turned.box.jpg"] == (120, 160) and sizes["more-ball.box.jpg"] == (90, 200)
    for row in report["photographs"]:
        x0, y0, x1, y1 = row["box"]
        assert 0 <= x0 < x1 <= row["width"] and 0 <= y0 < y1 <= row["height"]
        assert row["class_name"] and 0 < row["score"] <= 1
    rows = list(csv.DictReader((out / "attention.csv").open(encoding="utf-8")))
    assert [row["class_name"] for row in rows] == [
        row["class_name"] for row in report["photographs"]
    ]
    assert [int(row["x2"]) for row in rows] == [row["box"][2] for row in report["photographs"]]
    with np.load(out / "attention.npz", allow_pickle=False) as data:
        assert data["maps"].shape[:2] == (4, 1) and np.isfinite(data["maps"]).all()
        assert data["boxes"].tolist() == [row["box"] for row in report["photographs"]]
        assert data["files"].tolist() == [row["file"] for row in report["photographs"]]


def test_a_second_run_gives_the_same_and_a_glob_works(
    photos: Path, done: Done, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Equal to rounding: without the broken photograph the batches are others."""
    good = [
        str(photos / "b*l.jpg"),
        str(photos / "more"),
        str(photos / "print.jpg"),
        str(photos / "turned.jpg"),
    ]
    assert main(["attend", *good, "-o", str(tmp_path / "out"), *SMALL]) == 0
    assert capfd.readouterr().err == ""
    names = {path.name for path in done.out.iterdir()}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    before, after = (np.load(folder / "attention.npz") for folder in (done.out, tmp_path / "out"))
    names_before, names_after = ([Path(f).name for f in a["files"]] for a in (before, after))
    assert names_before == names_after
    np.testing.assert_allclose(after["maps"], before["maps"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after["boxes"], before["boxes"], atol=2)  # pixels
    assert main(["attend", *good, "-o", str(tmp_path / "out"), *SMALL]) == 0  # into the same folder
    assert {path.name for path in (tmp_path / "out").iterdir()} == names


def test_the_object_map_of_one_photograph(photos: Path, tmp_path: Path) -> None:
    """The box is on the ball, also with a saved model that has another map by default."""
    from cenote.models import create_model, save_model
    from cenote.predict.object_map import ObjectDirection, save_direction

    save_model(create_model("lite0", "simpool", num_classes=2, pretrained=True), tmp_path / "model")
    for options in ([], ["--model", str(tmp_path / "model"), "--map", "object"]):
        out = tmp_path / f"out{len(options)}"
        assert main(["attend", str(photos / "ball.jpg"), "-o", str(out), *SMALL, *options]) == 0
        report = json.loads((out / "attention.json").read_text())
        assert report["map"] == "object" and "by itself" in report["description"]
        assert iou(report["photographs"][0]["box"], [82, 18, 142, 78]) > 0.2
    save_direction(ObjectDirection(torch.ones(1280), 0.5, images=64), tmp_path / "model")
    assert main(["attend", str(photos / "ball.jpg"), "-o", str(out), *SMALL, *options]) == 0
    assert "64 images" in json.loads((out / "attention.json").read_text())["description"]


def test_other_maps_have_a_share(photos: Path, tmp_path: Path) -> None:
    options = ["--map", "cam", "--share", "0.3", "-o", str(tmp_path), *SMALL]
    assert main(["attend", str(photos / "ball.jpg"), *options]) == 0
    report = json.loads((tmp_path / "attention.json").read_text())
    assert (report["map"], report["share"]) == ("cam", 0.3) and "threshold" not in report


def test_too_few_positions_for_an_object_map(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = ["attend", str(photos / "ball.jpg"), "-o", str(tmp_path / "out"), "--size", "32"]
    assert main(argv) == 0
    assert "3 x 3 positions" in capfd.readouterr().err
    assert json.loads((tmp_path / "out" / "attention.json").read_text())["map"] == "cam"
    assert main([*argv, "--map", "object"]) == 2


def test_photographs_without_an_object(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A warning, and no box."""
    Image.new("RGB", (60, 60), "black").save(tmp_path / "black.png")
    assert main(["attend", str(tmp_path), "-o", str(tmp_path / "out"), "--size", "96"]) == 0
    assert "black.png: nothing stands out" in capfd.readouterr().err
    report = json.loads((tmp_path / "out" / "attention.json").read_text())
    assert report["photographs"][0]["box"] is None
    assert (tmp_path / "out" / "black.box.jpg").exists()


def test_an_untrained_pool_is_a_warning(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = main(
        ["attend", str(photos / "ball.jpg"), "-o", str(tmp_path), "--pool", "simpool", *SMALL]
    )
    error = capfd.readouterr().err
    assert code == 0 and "'simpool'" in error and len(error.splitlines()) == 1
    report = json.loads((tmp_path / "attention.json").read_text())
    assert report["map"] == "pool" and report["photographs"][0]["class_name"] is None


def test_a_saved_model(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from cenote.models import create_model, save_model

    model = create_model("lite0", "simpool", num_classes=2)
    model.class_names = ["ball", "no ball"]
    save_model(model, tmp_path / "model")
    options = ["--model", str(tmp_path / "model"), "-o", str(tmp_path / "out"), *SMALL]
    assert main(["attend", str(photos / "ball.jpg"), *options]) == 0, capfd.readouterr().err
    report = json.loads((tmp_path / "out" / "attention.json").read_text())
    assert report["photographs"][0]["class_name"] in ("ball", "no ball") and report["map"] == "pool"
    assert main(["attend", str(photos / "ball.jpg"), *options, "--pool", "gap"]) == 2
    assert "--model" in capfd.readouterr().err


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
        (["--share", "1.5"], "share must be more than 0 and at most 1"),
        (["--size", "4"], "size must be from 32"),
        (["--batch", "0"], "batch must be at least 1"),
        (["--head", "0"], "one object map, without heads"),
        (["--head", "all"], "one object map, without heads"),
        (["--head", "3", "--pool", "simpool"], "counted from 0: got --head 3"),
        (["--bckbone", "lite0"], "--backbone"),
    ],
)
def test_sentences(
    photos: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    options: list[str],
    sentence: str,
) -> None:
    assert main(["attend", str(photos / "ball.jpg"), "-o", str(tmp_path / "out"), *options]) == 2
    captured = capfd.readouterr()
    assert (
        sentence in " ".join(captured.err.split())
        and "Traceback" not in captured.err
        and not captured.out
    )
    assert not (tmp_path / "out").exists()  # wrong input leaves nothing behind


def test_nothing_to_look_at(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for paths in ([], [tmp_path], [tmp_path / "*.jpg"], [photos / "broken.jpg"]):
        assert main(["attend", *map(str, paths), "-o", str(tmp_path / "out"), *SMALL]) == 2
        assert all(str(path) in capfd.readouterr().err for path in paths)
    assert not (tmp_path / "out" / "attention.json").exists()


def test_a_missing_path_does_not_stop_the_others(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = [
        str(photos / "ball.jpg"),
        str(tmp_path / "gone.jpg"),
        "-o",
        str(tmp_path / "out"),
        *SMALL,
    ]
    assert main(["attend", *argv]) == 1
    assert f"{tmp_path / 'gone.jpg'}: " in capfd.readouterr().err
    assert (tmp_path / "out" / "ball.overlay.jpg").exists()


def test_an_output_folder_that_is_a_file(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").touch()
    assert main(["attend", str(photos / "ball.jpg"), "-o", str(tmp_path / "out"), *SMALL]) == 2
    assert str(tmp_path / "out") in capfd.readouterr().err


def test_it_points_at_real_pets(tmp_path: Path) -> None:
    """The peak of the map is on the animal, and the box overlaps it."""
    rows = [
        row
        for row in csv.DictReader((shared_data("pets") / "annotations.csv").open())
        if row["body_x1"]
    ][::60]
    files = [str(shared_data("pets") / row["file"]) for row in rows]
    assert main(["attend", *files, "-o", str(tmp_path), "--batch", "2"]) == 0
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
    assert np.mean(hits) > 0.7 and np.mean(overlaps) > 0.6, (np.mean(hits), np.mean(overlaps))


def iou(a: list[float], b: list[float]) -> float:
    shared = max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return shared / (sum(areas) - shared)


def test_every_block_and_every_head(photos: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = create_model("vit_tiny_patch16_224", "cls", 2, depth=-9, img_size=64)
    save_model(model, tmp_path / "run")
    photo, run = str(photos / "ball.jpg"), ["--model", str(tmp_path / "run"), "--size", "64"]
    maps, sheets = {}, {}
    for name, options in {
        "last": [],
        "blocks": ["--block", "all"],
        "first": ["--block", "0"],
        "heads": ["--head", "all"],
        "head": ["--block", "0", "--head", "1"],
        "both": ["--block", "all", "--head", "all"],
    }.items():
        out = tmp_path / name
        assert main(["attend", photo, *run, "--map", "cls", *options, "-o", str(out)]) == 0
        with np.load(out / "attention.npz") as file:
            maps[name] = file["maps"][0]
        with Image.open(out / "contact_sheet.jpg") as sheet:
            sheets[name] = sheet.size
    counts = {name: len(values) for name, values in maps.items()}
    assert counts == {"last": 1, "blocks": 3, "first": 1, "heads": 3, "head": 3, "both": 9}
    np.testing.assert_allclose(
        maps["blocks"][[0, -1]], [maps["first"][0], maps["last"][0]], atol=1e-5
    )
    np.testing.assert_allclose(maps["both"][-3:], maps["heads"], atol=1e-5)
    np.testing.assert_allclose(maps["heads"].mean(0), maps["last"][0], atol=1e-5)
    # A photograph and three maps in a row; with both a row for each of three blocks.
    assert sheets["both"][0] == sheets["blocks"][0]
    assert sheets["both"][1] > 2 * sheets["blocks"][1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--block", "1"], "--map cls"),
        (["--map", "cls", "--block", "7"], "got block 7"),
        (["--map", "cls", "--block", "all", "--head", "1"], "--head all"),
    ],
)
def test_sentences_about_blocks(
    options: list[str],
    message: str,
    photos: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = create_model(
        "vit_tiny_patch16_224", "simpool", 2, depth=-10, img_size=64, keep_cls=True
    )
    save_model(model, tmp_path / "run")
    run = ["attend", str(photos / "ball.jpg"), "--model", str(tmp_path / "run"), "--size", "64"]
    assert main([*run, *options, "-o", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err


def test_the_map_of_a_text(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["attend", str(photos / "ball.jpg"), "--text", "a ball", "-o", str(out)]) == 0
    report = json.loads((out / "attention.json").read_text())
    assert (report["map"], report["description"]) == ("text", "map of 'a ball'")
    assert report["description"] in capfd.readouterr().out
    (row,) = report["photographs"]
    assert row["box"] and row["class_name"] is None
    for options, words in (
        (["--pool", "gap"], "--text needs an image-text model"),
        (["--model", str(tmp_path)], "not a saved model"),
        (["--model", "resnet50"], "no model 'resnet50'"),
        (["--head", "2"], "counted from 0: got --head 2"),
    ):
        command = ["attend", str(photos / "ball.jpg"), "--text", "a ball", "-o", str(out)]
        assert main([*command, *options]) == 2
        assert words in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "'lite0' is not a plain ViT of timm"),
        (["--pool", "gap"], "--registers is for a ViT of --backbone"),
        (["--text", "a ball"], "--registers is for a ViT of --backbone"),
    ],
)
def test_registers_are_for_a_bare_vit(
    options: list[str], words: str, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["attend", str(photos / "ball.jpg"), "--registers", "-o", str(tmp_path), *options]
    assert main(command) == 2
    assert words in capfd.readouterr().err


def test_registers_of_a_real_vit(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    weights = shared_data("weights/vit_tiny_patch16_224.safetensors")
    command = ["attend", str(photos / "ball.jpg"), "--backbone", "vit_tiny_patch16_224"]
    command += ["--weights", str(weights), "--map", "cls", "--size", "224"]
    maps = []
    for name, options in (("plain", []), ("registers", ["--registers"])):
        assert main([*command, *options, "-o", str(tmp_path / name)]) == 0
        maps.append(np.load(tmp_path / name / "attention.npz")["maps"][0, 0])
    report = json.loads((tmp_path / "registers" / "attention.json").read_text())
    assert report["description"] == "cls map, with a test-time register"
    assert "417 of block 7" in capfd.readouterr().err
    plain, clean = (a[[0, 0, -1, -1], [0, -1, 0, -1]].sum() / a.sum() for a in maps)
    assert clean < plain / 2


def test_one_broken_photograph_gets_one_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"not an image")
    assert main(["attend", str(tmp_path / "broken.jpg"), "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "broken.jpg" in error and "stands out" not in error
