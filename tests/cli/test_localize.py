"""`cenote localize` as a user runs it: photographs in, boxes out in formats that our readers read."""

import csv
import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import cenote
from cenote.cli import main
from cenote.data import open_dataset, read_list
from cenote.data.coco import read_coco
from cenote.data.loading import UnreadableImage
from cenote.data.sources import open_photographs
from cenote.models import load, save_model
from cenote.predict.boxes import predict_boxes
from cenote.predict.maps import MapPredictor
from tests.synthetic import rectangle, rectangles
from tests.toy_models import localizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    save_model(localizer(), folder)
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    (folder / "more").mkdir()
    data = rectangles(4)
    for i in range(3):
        data.image(i).save(folder / f"{i}.png")
    data.image(3).save(folder / "more" / "0.png")  # the same name, another photograph
    turned = Image.Exif()
    turned[0x0112] = 6
    data.image(2).save(folder / "turned.jpg", exif=turned)
    (folder / "broken.jpg").write_bytes((folder / "turned.jpg").read_bytes()[:200])
    return folder


def localize(*argv: object) -> int:
    return main(["localize", *map(str, argv)])


def test_refined_maps_give_other_boxes(model: Path, photos: Path, tmp_path: Path) -> None:
    for name, options in (("plain", []), ("refined", ["--refine"])):
        assert localize(model, photos / "0.png", "-o", tmp_path / name, "--masks", *options) == 0
    texts = [(tmp_path / name / "boxes.json").read_text() for name in ("plain", "refined")]
    assert texts[0] != texts[1]


def test_every_format_at_once(
    model: Path, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    formats = ["coco", "voc", "csv", "yolo", "label-studio"]
    options = ["--format", *formats, "--masks", "--pictures", "--batch", 2]
    assert localize(model, photos, "-o", tmp_path / "out", *options) == 1  # one is broken
    captured = capfd.readouterr()
    which, first, *_, second, last = captured.err.splitlines()
    assert which.startswith("object map") and first == "threshold 0.50 (default)"
    assert f"{photos / 'broken.jpg'}: " in second
    assert last.startswith("cenote localize: 1 ")
    assert re.match(
        r"5 .*\b5 .*boxes.json, Annotations/, boxes.csv, yolo/, label-studio.json, masks/, pictures/",
        captured.out,
    )
    out = tmp_path / "out"
    table, instances = read_list(out / "boxes.csv"), read_coco(out / "boxes.json")
    assert len(table) == len(instances) == 5 and not table.problems and not instances.problems
    for i in range(5):
        assert table.path(i).resolve() == instances.path(i).resolve()
        width, height = table.image(i).size
        (box,), (other,) = table[i].boxes, instances[i].boxes
        assert box[:4] == other[:4] and table[i].label == other.label in ("a", "b", "c")
        assert 0 <= box.x1 < box.x2 <= width and 0 <= box.y1 < box.y2 <= height
        assert instances.mask(i).shape == (height, width)  # upright
    names = {"0", "1", "2", "more-0", "turned"}
    detector = open_dataset(out / "yolo")
    boxes = {Path(record.image).stem: record.boxes for record in detector}
    assert set(boxes) == names and boxes["turned"][0][:4] == pytest.approx(table[4].boxes[0][:4])
    assert len(json.loads((out / "label-studio.json").read_text())) == 5
    assert {path.stem for path in (out / "Annotations").iterdir()} == names
    assert {path.stem for path in (out / "masks").iterdir()} == names
    assert {path.stem for path in (out / "pictures").iterdir()} == {*names, "contact_sheet_1"}
    for entry in json.loads((out / "boxes.json").read_text())["annotations"]:
        assert 1 / 3 <= entry["score"] <= 1 and entry["area"] > 0


def test_a_second_run_into_the_same_folder_skips_the_pictures_of_the_first(
    model: Path, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for i in range(2):
        Image.open(photos / f"{i}.png").save(tmp_path / f"{i}.png")
    formats = ["--format", "voc", "yolo"]
    command = [model, tmp_path, "-o", tmp_path, *formats, "--masks", "--pictures"]
    for _ in range(2):
        assert localize(*command) == 0
        assert re.match(r"2 .*\b2 ", capfd.readouterr().out)  # boxes, photographs
    dataset = open_dataset(tmp_path)  # VOC's layout, with the photographs beside it
    assert len(dataset) == 2 and all(len(record.boxes) == 1 for record in dataset)


def test_the_results_of_another_command_are_not_overwritten(
    model: Path, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    first = [model, photos / "0.png", "-o", out]
    assert localize(*first) == 0
    written = {path.name: path.read_bytes() for path in out.iterdir()}
    assert localize(model, photos / "1.png", "-o", out) == 2
    message = capfd.readouterr().err.splitlines()[-1]
    assert str(photos / "0.png") in message and "another -o" in message
    assert {path.name: path.read_bytes() for path in out.iterdir()} == written
    assert localize(*first) == 0
    (out / "command.txt").unlink()  # of an earlier version
    assert localize(*first) == 2


def test_the_function_gives_the_boxes_of_the_command(
    model: Path, photos: Path, tmp_path: Path
) -> None:
    good = [photos / "0.png", photos / "more"]
    assert localize(model, *good, "-o", tmp_path) == 0
    rows = csv.DictReader((tmp_path / "boxes.csv").open(encoding="utf-8"))
    for row, (path, box, score, label) in zip(rows, cenote.localize(good, model), strict=True):
        assert (tmp_path / row["file"]).resolve() == path.resolve()
        assert (row["x1"], row["y1"], row["x2"], row["y2"]) == tuple(map(str, box))
        assert float(row["score"]) == pytest.approx(score, abs=1e-3) and row["class_name"] == label


def boxed(tmp_path: Path) -> list[object]:
    """A run, and the command for eight images with boxes, five of them for the choice of a threshold."""
    save_model(localizer(), tmp_path / "run")
    data, lines = rectangles(8), ["file,label,split,x1,y1,x2,y2"]
    for i in range(8):
        data.image(i).save(tmp_path / f"{i}.png")
        lines.append(
            ",".join(
                map(
                    str,
                    (f"{i}.png", "abc"[i % 3], "val" if i < 5 else "test", *rectangle(i).corners),
                )
            )
        )
    (tmp_path / "boxes.csv").write_text("\n".join(lines))
    return [tmp_path / "run", tmp_path / "boxes.csv", "-o", tmp_path / "out", "--format", "csv"]


def test_a_calibrated_threshold_is_saved(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = boxed(tmp_path)
    assert localize(*command, "--calibrate", tmp_path / "boxes.csv") == 0
    kept = json.loads((tmp_path / "run" / "localization.json").read_text())
    assert (
        kept["chosen_on"]["images"] == 5
        and kept["chosen_on"]["split"] == "val"
        and (kept["kind"], kept["size"]) in (("object", 112), ("cam", 64))
    )
    source = f"threshold {kept['threshold']:.2f} (5 images"
    assert source in capfd.readouterr().err
    written = (tmp_path / "out" / "boxes.csv").read_text()
    shutil.rmtree(tmp_path / "out")
    assert localize(*command) == 0 and source in capfd.readouterr().err
    assert (tmp_path / "out" / "boxes.csv").read_text() == written
    shutil.rmtree(tmp_path / "out")
    assert (
        localize(*command, "--threshold", 0.9) == 0
        and "threshold 0.90 (as given)" in capfd.readouterr().err
    )
    assert (tmp_path / "out" / "boxes.csv").read_text() != written


def test_a_read_only_run_can_be_calibrated(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = boxed(tmp_path)
    assert localize(*command, "--calibrate", tmp_path / "boxes.csv") == 0
    value = json.loads((tmp_path / "run" / "localization.json").read_text())["threshold"]
    written = (tmp_path / "out" / "boxes.csv").read_text()
    (tmp_path / "run" / "localization.json").unlink()
    (
        tmp_path / "run" / "localization.json"
    ).mkdir()  # nothing can be written there, not even by root
    capfd.readouterr()
    assert localize(*command, "--calibrate", tmp_path / "boxes.csv") == 0
    error = capfd.readouterr().err
    assert (
        str(tmp_path / "run" / "localization.json") in error and f"--threshold {value:.2f}" in error
    )
    assert f"threshold {value:.2f} (5 images" in error
    assert (tmp_path / "out" / "boxes.csv").read_text() == written


def test_a_doubtful_threshold_is_a_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [*boxed(tmp_path), "--map", "cam"]
    assert localize(*command, "--calibrate", tmp_path / "boxes.csv") == 0
    assert re.search(r"\b20 images\b", capfd.readouterr().err)  # there were fewer
    path = tmp_path / "run" / "localization.json"
    kept = json.loads(path.read_text())
    good = {"threshold": 0.2, "max_box_acc": 50.0, "centred_box": 40.0}
    doubtful = [
        {"threshold": 0.01},
        {"centred_box": 50.0},
    ]  # very low; no better than a box in the middle
    for change, warnings in [({}, 0), *((change, 1) for change in doubtful)]:
        on = {**kept["chosen_on"], "images": 20}
        path.write_text(json.dumps({**kept, **good, "chosen_on": on, **change}))
        shutil.rmtree(tmp_path / "out")
        assert localize(*command) == 0
        kind, first, *others = capfd.readouterr().err.splitlines()
        assert kind == "cam map" and first.startswith("threshold 0.") and len(others) == warnings


def test_out_that_is_a_file(
    model: Path, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("mine")
    assert localize(model, photos, "-o", tmp_path / "out") == 2
    assert f"-o {tmp_path / 'out'}" in capfd.readouterr().err


def test_one_box_is_not_boxes(
    model: Path, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert localize(model, photos / "0.png", "-o", tmp_path / "out") == 0
    assert capfd.readouterr().out.startswith("1 box in 1 photograph: ")


def test_several_objects_in_an_image(model: Path, photos: Path, tmp_path: Path) -> None:
    counts = []
    for name, flags in (("one", []), ("several", ["--several"])):
        out = tmp_path / name
        assert localize(model, photos / "*.png", "-o", out, "--threshold", 0.9, *flags) == 0
        counts.append([len(record.boxes) for record in read_list(out / "boxes.csv")])
    assert counts[0] == [1, 1, 1] and sum(counts[1]) > 3, counts


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--threshold", "1"], "a threshold must be at least 0 and less than 1, got 1.0"),
        (
            ["--threshold", "0.5", "--calibrate", "world/tiny"],
            "--threshold and --calibrate exclude each other",
        ),
        (["--calibrate", "nowhere"], "nowhere"),
        (["--map", "pool"], "'gap' has no attention map of its own"),
        (["--map", "cls"], "has no CLS token"),
        (["--format", "yol"], "invalid choice"),
        (["--format"], "nothing would be written"),
        (["--batch", "0"], "--batch must be a whole number of at least 1, got 0"),
    ],
)
def test_sentences(
    model: Path,
    photos: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    options: list[str],
    sentence: str,
) -> None:
    assert localize(model, photos / "0.png", "-o", tmp_path / "out", *options) == 2
    assert not (tmp_path / "out").exists()
    captured = capfd.readouterr()
    assert (
        sentence in " ".join(captured.err.split())
        and "Traceback" not in captured.err
        and not captured.out
    )
    assert not list(tmp_path.rglob("*.*"))


def test_nothing_to_look_at(
    model: Path, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in (tmp_path / "none.jpg", photos / "broken.jpg"):
        assert localize(model, path, "-o", tmp_path / "out") == 2
        assert str(path) in capfd.readouterr().err
    assert localize(tmp_path, photos, "-o", tmp_path / "out") == 2
    assert "Traceback" not in capfd.readouterr().err
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_image_without_an_object(tmp_path: Path, model: Path) -> None:
    """A constant map has no box."""
    model_of_nothing = localizer()
    for parameter in model_of_nothing.parameters():
        parameter.data.zero_()
    save_model(model_of_nothing, tmp_path / "run")
    Image.fromarray(np.zeros((30, 20, 3), np.uint8)).save(tmp_path / "dark.png")
    assert (
        localize(
            tmp_path / "run",
            tmp_path / "dark.png",
            "-o",
            tmp_path,
            "--format",
            "coco",
            "csv",
            "voc",
        )
        == 0
    )
    assert read_list(tmp_path / "boxes.csv")[0].boxes == ()
    assert json.loads((tmp_path / "boxes.json").read_text())["annotations"] == []


def test_a_killed_run_resumes_to_the_same_files(
    model: Path,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """kill -9 in the middle: nothing is processed twice, and every file is as of one run.

    To the bit with batches of one: the resumed run forms its batches from the first image that is missing.
    """
    photos = Path(shutil.copytree(photos, tmp_path / "photos"))
    for i in range(60):
        Image.effect_noise((70 + i, 60), 90).convert("RGB").save(photos / f"n{i:02}.png")
    options = ["--format", "coco", "voc", "csv", "--masks", "--batch", 1, "--map", "cam"]
    assert localize(model, photos, "-o", tmp_path / "whole", *options) == 1
    journal = tmp_path / "out" / ".localize.jsonl"
    command = [
        sys.executable,
        "-m",
        "cenote",
        "localize",
        model,
        photos,
        "-o",
        tmp_path / "out",
        *options,
    ]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)
    while process.poll() is None and not (
        journal.is_file() and journal.read_bytes().count(b"\n") > 8
    ):
        time.sleep(0.005)
    process.kill()
    process.wait()
    done = journal.read_bytes().count(b"\n") - 1
    assert 8 <= done < 66
    batches: list[int] = []
    see = MapPredictor.predict
    monkeypatch.setattr(
        MapPredictor,
        "predict",
        lambda predictor, images, paths: (batches.append(len(images)), see(predictor, images))[1],
    )
    assert localize(model, photos, "-o", tmp_path / "out", *options) == 1
    assert sum(batches) <= 65 - (done - 1)  # one of them is broken
    assert not journal.exists() and re.search(r"\b65 ", capfd.readouterr().out)
    whole = {
        path.relative_to(tmp_path / "whole")
        for path in (tmp_path / "whole").rglob("*")
        if path.is_file() and path.name not in ("command.txt", ".lock")
    }
    assert len(whole) == 2 + 2 * 65
    for name in whole:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), (
            name
        )
    left = {
        path.relative_to(tmp_path / "out")
        for path in (tmp_path / "out").rglob("*")
        if path.is_file() and path.name not in ("command.txt", ".lock")
    }
    assert left == whole, "nothing is left of the killed run"


def test_scaled_decoding_invalidates_saved_progress(
    model: Path, photos: Path, tmp_path: Path
) -> None:
    predictor = MapPredictor(load(model).eval(), "cam", 64, 1)
    images, file = open_photographs([str(photos)], []), tmp_path / "progress"
    backbone, digests = predictor.model.backbone, set[str]()
    for scaled in (False, True):
        preprocessing = replace(backbone.preprocessing, scaled_decoding=scaled)
        backbone.preprocessing = preprocessing
        next(predict_boxes(predictor, images, 0.2, progress_file=file))
        digests.add(file.read_text().splitlines()[0])
    assert len(digests) == 2


def test_a_journal_is_valid_for_another_threshold(
    model: Path, photos: Path, tmp_path: Path
) -> None:
    predictor = MapPredictor(load(model).eval(), "cam", 64, 1)
    images = open_photographs([str(photos)], [])
    journal = tmp_path / "journal"
    for _, _ in zip(
        range(4), predict_boxes(predictor, images, 0.2, progress_file=journal), strict=False
    ):
        pass
    again, plain = (
        list(predict_boxes(predictor, images, 0.6, True, path)) for path in (journal, None)
    )
    for one, other in zip(again, plain, strict=True):
        assert one.position == other.position
        if not isinstance(one, UnreadableImage) and not isinstance(other, UnreadableImage):
            np.testing.assert_array_equal(one.boxes, other.boxes)
            np.testing.assert_array_equal(one.objects, other.objects)


def test_videos_beside_photographs(
    model: Path, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    av = pytest.importorskip("av", reason="needs: pip install 'cenote[video]'")
    folder, out = tmp_path / "trip", tmp_path / "out"
    folder.mkdir()
    shutil.copy(photos / "0.png", folder)
    (folder / "broken.mp4").write_bytes(b"no video")
    with av.open(str(folder / "clip.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=2)
        stream.width = stream.height = 64
        for i in range(4):
            image = Image.open(photos / f"{i // 2}.png").convert("RGB").resize((64, 64))
            container.mux(stream.encode(av.VideoFrame.from_image(image)))
        container.mux(stream.encode())
    assert localize(model, folder, "-o", out, "--format", "yolo", "csv", "--pictures") == 1
    assert "broken.mp4: " in capfd.readouterr().err
    names = ["0", "clip@00h00m00s", "clip@00h00m01s"]
    assert sorted(Path(record.image).stem for record in open_dataset(out / "yolo")) == names
    table = read_list(out / "boxes.csv")  # its frames can be read, too
    assert [table.image(i).size for i in (1, 2)] == [(64, 64)] * 2 and not table.problems
    assert all((out / "pictures" / f"{name}.jpg").is_file() for name in names)
    predictions = cenote.Model(model).predict(folder / "clip.mp4")
    assert [prediction.path.stem for prediction in predictions] == names[1:]
