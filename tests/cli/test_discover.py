"""`cenote discover` as a user runs it: photographs without labels, a data set with boxes, a saved model, bad input."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro
from PIL import Image, ImageDraw

from cenote.cli import fail
from cenote.cli.discover import run
from cenote.evaluate.discover import METHODS

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("CENOTE_SHARED_DATA", ROOT.parent / "shared" / "data"))


def discover(*argv: object) -> int:
    """As `cenote discover ARGV` ends, in this process."""
    try:
        tyro.cli(run, prog="cenote discover", args=[str(one) for one in argv])
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Exception as error:
        return fail("discover", error)
    return 0


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


def test_photographs_without_labels(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert discover(photos, "-o", out) == 1
    captured = capfd.readouterr()
    assert captured.err.splitlines()[0].startswith(f"skipped {photos / 'broken.jpg'}: damaged or unreadable")
    assert captured.err.splitlines()[-1] == "cenote discover: 1 failed, see above"
    assert "no true boxes" in captured.out and "in 2 photographs" in captured.out
    names = {path.name for path in out.iterdir()}
    assert names == {"boxes.json", "boxes.csv", "masks", "found.jpg", "results.json", "index.html", "page.json"}, (
        "and no journal is left"
    )
    rows = list(csv.DictReader((out / "boxes.csv").open(encoding="utf-8")))
    found = json.loads((out / "boxes.json").read_text())
    assert (
        [Path(row["file"]).name for row in rows]
        == ["ball.jpg", "ball.jpg"]
        == [Path(image["file_name"]).name for image in found["images"]]
    )
    for row, name in zip(rows, ("ball", "more-ball"), strict=True):
        mask = np.asarray(Image.open(out / "masks" / f"{name}.png"))
        assert mask.shape == (int(row["height"]), int(row["width"]))
        ys, xs = np.nonzero(mask)
        box = [int(row[key]) for key in ("x1", "y1", "x2", "y2")]
        assert np.abs(np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]) - box).max() <= 1
    assert json.loads((out / "results.json").read_text())["keys"] == "map"


def test_several_methods_judged_by_true_boxes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder, out = tmp_path / "data", tmp_path / "out"
    folder.mkdir()
    lines = ["file,x1,y1,x2,y2"]
    for i in range(3):
        lines.append(",".join(map(str, [f"{i}.png", *ball(folder / f"{i}.png", (224, 160 + 32 * i))])))
    (folder / "annotations.csv").write_text("\n".join(lines) + "\n")
    assert discover(folder, "-o", out, "--method", "lost, tokencut,,dinoseg", "--size", "320", "--json") == 0
    report = json.loads(capfd.readouterr().out)
    assert report["images"] == 3 and set(report["methods"]) == {"lost", "tokencut", "dinoseg", "centre"}
    for name in ("lost", "tokencut", "dinoseg"):
        assert (out / name / "boxes.json").exists() and len(list((out / name / "masks").iterdir())) == 3
        Image.open(out / f"discover_{name}.jpg").load()
    assert discover(folder, "-o", out, "--method", "lost") == 0
    told = capfd.readouterr().out
    assert "3 images with boxes" in told and "LOST" in told and "a box in the middle" in told


def test_a_saved_model(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from cenote.models import create_model, save_model

    save_model(create_model("lite0", "simpool", 2, pretrained=True), tmp_path / "run")
    options = ["--model", tmp_path / "run", "--method", "all", "-o", tmp_path / "out"]
    assert discover(photos / "ball.jpg", *options) == 0, capfd.readouterr().err
    report = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (report["keys"], report["attention"]) == ("pool", "pool")


def test_its_own_pictures_are_no_photographs(photos: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (photos / "broken.jpg").unlink()
    for _ in range(2):
        assert discover(photos, "-o", photos) == 0
        assert "in 2 photographs" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--method", "tokncut"], "no method 'tokncut'; did you mean 'tokencut'? (lost, dinoseg"),
        (["--method", " , "], "no method is named: lost, dinoseg"),
        (["--backbone", "resnet5"], "no backbone 'resnet5'; did you mean"),
        (["--model", "none"], "no such model folder: none"),
        (["--size", "3"], "from 32 (one patch) to 4096 pixels"),
        (["--keys", "block"], "no attention over all patches was seen in 'lite0'"),
        (["--head", "9", "--method", "dinoseg"], "there is no head 9"),
    ],
)
def test_wrong_input_is_a_sentence_and_leaves_nothing(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    assert discover(photos / "ball.jpg", "-o", tmp_path / "out", *options) == 2
    error = capfd.readouterr().err
    assert sentence in error and "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_out_that_is_a_file(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("mine")
    for out in (tmp_path / "out", tmp_path / "out" / "deeper"):
        assert discover(photos / "ball.jpg", "-o", out) == 2
        assert f"-o {tmp_path / 'out'} is a file: name a folder" in capfd.readouterr().err
    assert (tmp_path / "out").read_text() == "mine"


def test_interrupted_it_goes_on(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (photos / "broken.jpg").unlink()
    for name in ("b.jpg", "c.jpg"):
        ball(photos / name)
    looked: list[str] = []
    plain = METHODS["tokencut"]

    def counting(look: Any, name: str) -> Any:
        looked.append(Path(name).name)
        if stop and len(looked) == 3:
            raise KeyboardInterrupt
        return plain(look, name)

    monkeypatch.setitem(METHODS, "tokencut", counting)
    stop = True
    with pytest.raises(KeyboardInterrupt):
        discover(photos, "-o", tmp_path / "out")
    assert "interrupted; the same command goes on" in capfd.readouterr().err
    stop = False
    assert discover(photos, "-o", tmp_path / "out") == 0
    assert looked == ["b.jpg", "ball.jpg", "c.jpg", "c.jpg", "ball.jpg"] and len(set(looked)) == 3
    assert "in 4 photographs" in capfd.readouterr().out


def test_what_was_kept_is_of_these_very_files(photos: Path, tmp_path: Path) -> None:
    """A photograph that was repaired is looked at again; a tail of unreadable ones too."""
    import torch

    from cenote.data.loading import Bad
    from cenote.data.photographs import open_photographs
    from cenote.evaluate.journal import Journal, name_of_run
    from cenote.evaluate.sightings import Discovered, Sighting, read, written

    def name() -> str:
        return name_of_run(torch.nn.Linear(1, 1, False).requires_grad_(False), open_photographs([str(photos)], []))

    torch.manual_seed(0)
    before = name()
    torch.manual_seed(0)
    assert name() == before
    ball(photos / "broken.jpg")
    torch.manual_seed(0)
    assert name() != before
    found = Sighting(0, (4, 4), {"lost": Discovered(np.zeros((0, 4)), [])})
    lines = [found, Bad(1, "gone"), found._replace(position=2), Bad(3, "gone"), Bad(4, "gone")]
    images = open_photographs([str(photos)], []).select([0] * 5)
    list(Journal(tmp_path / "journal", "one", written, read).over(images, lambda _: iter(lines)))
    kept = Journal(tmp_path / "journal", "one", written, read)
    again = list(kept.over(images, lambda rest: iter([found] * len(rest))))
    assert kept.done == 3 and [one.position for one in again] == [0, 1, 2, 3, 3] and again[1] == lines[1]


def test_nothing_to_look_at(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert discover(tmp_path / "*.jpg", "-o", tmp_path / "out") == 2
    assert "no photographs found" in capfd.readouterr().err
    assert discover(photos / "broken.jpg", "-o", tmp_path / "out") == 2
    assert "no image of photographs could be used" in capfd.readouterr().err


@pytest.mark.skipif(not (DATA / "cub").is_dir(), reason="no birds: set CENOTE_SHARED_DATA")
def test_it_finds_real_birds(tmp_path: Path) -> None:
    """TokenCut of lite0's map overlaps the bird more than half in most of a few photographs."""
    rows = list(csv.DictReader((DATA / "cub" / "annotations.csv").open()))[::75]
    with (tmp_path / "birds.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "x1", "y1", "x2", "y2"])
        writer.writerows([str(DATA / "cub" / row["file"]), *(row[k] for k in ("x1", "y1", "x2", "y2"))] for row in rows)
    assert discover(tmp_path / "birds.csv", "-o", tmp_path / "out") == 0
    report = json.loads((tmp_path / "out" / "results.json").read_text())
    assert report["images"] == 16 and report["methods"]["tokencut"]["corloc"] >= 50
