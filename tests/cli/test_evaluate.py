"""`cenote evaluate` as a user runs it, with broken files, pictures that fail and interrupted runs."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps
from tqdm import tqdm

from cenote.cli import main
from cenote.data import open_dataset
from cenote.data.backgrounds import VARIANTS
from cenote.data.corruptions import CORRUPTIONS, SEVERITIES
from cenote.evaluate.classify import ClassificationReport
from cenote.evaluate.corruption import corrupt_for
from cenote.models import PooledModel, load, save_model
from cenote.predict.discovery import METHODS
from tests.synthetic import rectangle, rectangles
from tests.toy_models import localizer

IMAGES = 6


def evaluate(*argv: object) -> int:
    return main(["evaluate", *map(str, argv)])


def write_images(folder: Path, split: str = "val") -> Path:
    """A list with classes, boxes and masks: half of the images validate, half test."""
    data, lines = rectangles(IMAGES), ["file,label,split,mask,x1,y1,x2,y2"]
    for i in range(IMAGES):
        data.image(i).save(folder / f"{i}.png")
        Image.fromarray((data.mask(i) == 1).astype(np.uint8)).save(folder / f"{i}-mask.png")
        row = (
            f"{i}.png",
            "abc"[i % 3],
            split if i < 3 else "test",
            f"{i}-mask.png",
            *rectangle(i).corners,
        )
        lines.append(",".join(map(str, row)))
    (folder / "list.csv").write_text("\n".join(lines))
    return folder / "list.csv"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    save_model(localizer(), tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return write_images(tmp_path / "data")


def written(folder: Path) -> set[str]:
    """Return the files of a report, without the lock and the command that wrote it."""
    return {path.name for path in folder.iterdir()} - {".lock", "command.txt"}


def results(out: Path) -> Any:
    return json.loads((out / "results.json").read_text())


@pytest.fixture
def quick_corruptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """All corruptions but contrast do nothing."""
    from cenote.data.corruptions import registry

    def unchanged(image: Any, severity: int, rng: Any) -> Any:
        return image

    for name in set(CORRUPTIONS) - {"contrast"}:
        entry = registry._registry[name]._replace(function=unchanged)
        monkeypatch.setitem(registry._registry, name, entry)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the variants of the data that were classified."""
    from cenote.evaluate import per_image_correct

    names: list[str] = []
    check_images = per_image_correct.check_images

    def recording(model: Any, dataset: Any, *arguments: Any, **options: Any) -> Any:
        names.append(dataset.name)
        return check_images(model, dataset, *arguments, **options)

    monkeypatch.setattr(per_image_correct, "check_images", recording)
    return names


@pytest.mark.usefixtures("quick_corruptions")
def test_an_unreadable_first_image(run: Path, data: Path, tmp_path: Path) -> None:
    (data.parent / "3.png").write_bytes(b"")  # the first of those judged
    assert evaluate(run, data, "--on", "corruption,background", "-o", tmp_path / "out") == 0
    report = results(tmp_path / "out")
    assert report["corruption"]["images"] == 2 and report["background"]["images"] <= 2
    names = written(tmp_path / "out")
    pictures = {
        "corruption.png",
        "corruptions.jpg",
        "severities.jpg",
        "background.png",
        "variants.jpg",
    }
    assert names == {"results.json", "index.html", "page.json", *pictures}, (
        "saved passes are removed"
    )


def test_a_picture_that_fails_does_not_fail_the_report(
    run: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def broken(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("no font")

    for name in ("draw_variant_bars", "variant_sheet"):
        monkeypatch.setattr(f"cenote.evaluate.background.{name}", broken)
    assert evaluate(run, data, "--on", "background", "-o", tmp_path / "out") == 0
    error = capfd.readouterr().err
    assert "background.png" in error and "no font" in error
    assert written(tmp_path / "out") == {
        "results.json",
        "index.html",
        "page.json",
    }


@pytest.mark.usefixtures("quick_corruptions")
def test_pictures_show_what_was_judged(
    run: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[tuple[str, int], Any] = {}

    def sheet(corrupted: Any) -> None:
        seen.update(
            {
                (name, k): np.asarray(corrupted(name, k))
                for name in ("fog", "contrast")
                for k in (1, 3)
            }
        )

    monkeypatch.setattr("cenote.report.robustness.severity_sheet", sheet)
    assert evaluate(run, data, "--on", "corruption", "--seed", 5, "-o", tmp_path / "out") == 0
    judged, model = open_dataset(str(data)).split("test"), load(run)
    for (name, k), picture in seen.items():
        assert np.array_equal(picture, np.asarray(corrupt_for(model, judged, 5, name, k).image(0)))
    assert len(seen) == 4


def test_saved_passes_are_of_this_model_and_these_images(
    run: Path, data: Path, tmp_path: Path, passes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cenote.evaluate import per_image_correct

    recording = per_image_correct.check_images
    stop_after: int | None = None

    def stopping(*arguments: Any, **options: Any) -> Any:
        if len(passes) == stop_after:
            raise KeyboardInterrupt
        return recording(*arguments, **options)

    monkeypatch.setattr(per_image_correct, "check_images", stopping)

    def count(stop: int | None) -> int:
        nonlocal stop_after
        passes.clear()
        stop_after = stop
        code = evaluate(run, data, "--on", "background", "-o", tmp_path / "out")
        assert code == (0 if stop is None else 130)
        return len(passes)

    count(3)
    assert count(None) == len(VARIANTS) - 3
    count(3)
    save_model(localizer("gem"), run)  # another model in the same folder
    assert count(None) == len(VARIANTS)
    count(3)
    ImageOps.invert(Image.open(data.parent / "4.png")).save(data.parent / "4.png")
    assert count(None) == len(VARIANTS)
    count(3)
    data.write_text(data.read_text().replace("5.png,c", "5.png,a"))
    assert count(None) == len(VARIANTS)


def test_saved_passes_stay_until_results_are_written(
    run: Path, data: Path, tmp_path: Path, passes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("cenote.evaluate.background.BackgroundReport.to_json", lambda report: 1 / 0)
        assert evaluate(run, data, "--on", "background", "-o", tmp_path / "out") == 1
    passes.clear()
    assert evaluate(run, data, "--on", "background", "-o", tmp_path / "out") == 0 and not passes


def test_imagenet_9_with_pictures(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for variant in ("original", "mixed_same", "mixed_rand"):
        for k, name in enumerate("abc"):
            folder = tmp_path / "in9" / variant / "val" / f"0{k}_{name}"
            folder.mkdir(parents=True)
            rectangles(3).image(k).save(folder / "0.JPEG")
            if variant == "mixed_rand":
                (folder / "0.JPEG").write_bytes(b"")
    options = ["--on", "background", "-o", tmp_path / "out", "--json"]
    assert evaluate(run, f"imagenet-9:{tmp_path / 'in9'}", *options) == 0, capfd.readouterr().err
    captured = capfd.readouterr()
    assert not captured.err and (tmp_path / "out" / "background.png").exists()
    accuracy = json.loads(captured.out, parse_constant=pytest.fail)["background"]["accuracy"]
    assert accuracy["mixed_rand"] is None and accuracy["original"] is not None  # no NaN in JSON
    assert "NaN" not in (tmp_path / "out" / "results.json").read_text()
    assert not (tmp_path / "out" / "variants.jpg").exists()


def test_imagenet_c_with_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for level in SEVERITIES:
        for k, wnid in enumerate(("n01440764", "n01443537")):
            folder = tmp_path / "c" / "weather" / "fog" / str(level) / wnid
            folder.mkdir(parents=True)
            rectangles(3).image(k).save(folder / "0.JPEG")
    model = localizer(num_classes=2)
    model.class_names = list(open_dataset(f"imagenet-c:{tmp_path / 'c'}").classes)
    save_model(model, tmp_path / "run")
    totals = []

    class RecordingBar(tqdm):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            totals.append(options["total"])
            super().__init__(*arguments, **options)

    monkeypatch.setattr("tqdm.tqdm", RecordingBar)
    command = ["--on", "corruption", "-o", tmp_path / "out"]
    assert evaluate(tmp_path / "run", f"imagenet-c:{tmp_path / 'c'}", *command) == 0
    assert totals == [10]  # images, not images times passes
    assert written(tmp_path / "out") == {
        "results.json",
        "index.html",
        "page.json",
        "corruption.png",
    }


def test_the_saved_threshold(
    run: Path, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept = run / "localization.json"
    assert evaluate(run, data, "--on", "localize") == 0
    honest = json.loads(kept.read_text())
    assert honest["chosen_on"] | {"data": ""} == {
        "data": "",
        "split": "val",
        "images": 3,
        "oracle": False,
    }
    assert honest["max_box_acc"] >= 0 and honest["centred_box"] >= 0
    before = kept.read_text()
    assert (
        evaluate(run, data, "--split", "val", "--on", "localize") == 0
    )  # no others to choose on: an oracle
    assert kept.read_text() == before and str(kept) in capfd.readouterr().err
    kept.unlink()
    assert evaluate(run, data, "--split", "val", "--on", "localize", "-o", tmp_path / "out") == 0
    oracle = json.loads(kept.read_text())["chosen_on"]
    assert (oracle["split"], oracle["oracle"], oracle["images"]) == ("val", True, 3)
    assert (
        main(["localize", str(run), str(data.parent / "0.png"), "-o", str(tmp_path / "boxes")]) == 0
    )
    assert re.search(r"\b3 images\b.*\bval\b", capfd.readouterr().err)
    assert (
        evaluate(run, data, "--on", "localize") == 0
    )  # the threshold that validation images chose replaces it
    assert json.loads(kept.read_text()) == honest


def test_a_read_only_run_loses_nothing(
    run: Path, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (run / "localization.json").mkdir()  # nothing can be written there, not even by root
    options = ["--on", "localize", "--map", "cam", "-o", tmp_path / "out"]
    assert evaluate(run, data, *options) == 0
    captured, report = capfd.readouterr(), results(tmp_path / "out")["localize"]
    assert "MaxBoxAccV2" in captured.out and str(run / "localization.json") in captured.err
    assert f"--map cam --size 64 --threshold {report['threshold']:.2f}" in captured.err
    assert {"curve.png", "cases.jpg", "results.json", "index.html", "page.json"} == written(
        tmp_path / "out"
    )


def test_interrupted_discovery_resumes(
    run: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """With a folder for its journal; without one there is nothing to resume."""
    seen: list[int] = []
    stop = True
    plain = METHODS["lost"]

    def recording(patches: Any) -> Any:
        seen.append(patches.position)
        if stop and len(seen) == 2:
            raise KeyboardInterrupt
        return plain.find(patches)

    for name in set(METHODS) - {"lost"}:
        monkeypatch.delitem(METHODS, name)
    monkeypatch.setitem(METHODS, "lost", replace(plain, find=recording))
    for out in ([], ["-o", tmp_path / "out"]):
        seen.clear()
        assert evaluate(run, data, "--on", "discover", *out) == 130
        assert ("resume with: " in capfd.readouterr().err) == bool(out)
    stop = False
    assert evaluate(run, data, "--on", "discover", "-o", tmp_path / "out") == 0
    assert seen == [0, 1, 0, 1]  # the second of three is the first that is left
    assert results(tmp_path / "out")["discover"]["images"] == 3 and not list(
        (tmp_path / "out").glob(".*.jsonl")
    )


def test_a_segmentation_of_another_model_starts_afresh(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    data = write_images(tmp_path / "data", "train")
    from cenote.train import segmentation
    from cenote.train.log import Interrupted

    resumed: list[bool] = []
    learning_rates: list[float] = []
    ends = False

    def trained(
        model: Any, train: Any, test: Any, folder: Path, settings: Any, resume: bool
    ) -> Any:
        resumed.append(resume)
        learning_rates.append(settings.lr)
        assert resume == (folder / "checkpoint.pt").exists()
        (folder / "checkpoint.pt").write_bytes(b"half")
        if not ends:
            raise Interrupted("interrupted")
        return segmentation.SegmentationReport(
            miou=1.0,
            macc=1.0,
            aacc=1.0,
            iou={},
            classes=2,
            images=1,
            trained_on=3,
            size=64,
            unreadable=["4.png: its mask is damaged"],
            cached=True,
            settings={},
            seconds=1.0,
            image_miou={0: 1.0},
            predict=lambda dataset, positions: {},
        )

    monkeypatch.setattr(segmentation, "segment", trained)
    command = [run, data, "--on", "segment", "-o", tmp_path / "out"]
    assert evaluate(*command) == 130 and evaluate(*command) == 130
    save_model(localizer("gem"), run)
    assert evaluate(*command) == 130
    ends = True
    assert len(capfd.readouterr().err.splitlines()) == 3
    assert evaluate(*command) == 0 and resumed == [False, True, False, True]
    assert (
        "(1 image)" in capfd.readouterr().out
        and results(tmp_path / "out")["segment"]["images"] == 1
    )
    assert not list((tmp_path / "out" / "segment").iterdir())
    assert evaluate(*command) == 0 and resumed[-1] is False
    other = [*command[:-1], tmp_path / "other", "--settings", "lr=3e-5", "weight_decay=0.05"]
    assert evaluate(*other) == 0
    assert learning_rates[-2:] == [1e-3, 3e-5]
    assert evaluate(run, data, "--on", "knn", "--settings", "lr=3e-5") == 2
    assert "--on segment" in capfd.readouterr().err


def test_the_model_runs_on_the_gpu_if_there_is_one(
    run: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    report = ClassificationReport(math.nan, math.nan, 0, 0, [])
    devices: list[torch.device] = []
    monkeypatch.setattr(PooledModel, "to", lambda self, device: devices.append(device) or self)
    accelerator = torch.device("cuda")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: accelerator)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    monkeypatch.setattr("cenote.evaluate.classify.classify", lambda *arguments, **options: report)
    assert evaluate(run, data) == 0 and devices[-1].type == "cuda"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--on", "classify,lokalize"],
            "no protocol 'lokalize'; did you mean 'localize'?",
        ),
        (["--on", ","], "no protocol is named: "),
        (["-o", "FILE"], "is a file: name a folder"),
        (["-o", "FILE/deeper"], "is a file: name a folder"),
    ],
)
def test_sentences(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    (tmp_path / "file").write_text("mine")
    options = [option.replace("FILE", str(tmp_path / "file")) for option in options]
    assert evaluate("no-run", str(tmp_path), *options) == 2  # before either is opened
    error = capfd.readouterr().err
    assert sentence in error and len(error.splitlines()) == 1


def test_names_with_blanks(run: Path, data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (data.parent / "4.png").write_bytes(b"")
    (data.parent / "5.png").write_bytes(b"")
    assert evaluate(run, data, "--on", " classify, classify,,localize") == 0
    text = capfd.readouterr().out
    assert text.startswith("classify\n") and "\nlocalize\n" in text
    assert text.count("1 image") == 2


def test_protocols_without_ground_truth_are_skipped(
    run: Path, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [line.split(",")[:3] for line in data.read_text().splitlines()]
    data.write_text("\n".join(map(",".join, lines)))
    assert evaluate(run, data, "--on", "localize,classify", "-o", tmp_path / "out") == 0
    captured = capfd.readouterr()
    assert "localize is skipped: no image of" in captured.err and "localize" not in captured.out
    assert results(tmp_path / "out").keys() == {"split", "images", "classify"}
    assert evaluate(run, data, "--on", "localize,background") == 2
    assert evaluate(run, data, "--on", "localize") == 2


def test_retrieval_with_a_picture(
    run: Path, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data.write_text(data.read_text().replace(",val,", ",test,"))
    (data.parent / "5.png").write_bytes(
        b""
    )  # of class c, whose other image then has nothing to find
    assert evaluate(run, data, "--on", "retrieve", "-o", tmp_path / "out") == 0
    captured, report = capfd.readouterr(), results(tmp_path / "out")["retrieve"]
    assert (
        captured.out.split()[:7] == ["R@1", "R@2", "R@4", "R@8", "P@1", "RP", "MAP@R"]
        and not captured.err
    )
    assert "5.png" in captured.out
    assert (report["images"], report["queries"], report["without_match"]) == (5, 4, 1) and report[
        "recall@8"
    ] == 100
    assert written(tmp_path / "out") == {
        "results.json",
        "index.html",
        "page.json",
        "retrieval.jpg",
    }


def test_queries_and_gallery_are_different_splits(
    run: Path, data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data.write_text(data.read_text().replace(",val,", ",query,").replace(",test,", ",gallery,"))
    assert evaluate(run, data, "--on", "retrieve") == 0
    assert "3 queries" in capfd.readouterr().out
    assert (
        evaluate(run, data, "--on", "retrieve", "--split", "gallery") == 2
    )  # three classes of one image each
    assert "3 queries" in capfd.readouterr().err


def test_landmarks_have_another_table(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from tests.data.benchmarks import annotated_trees

    (tmp_path / "r").mkdir()
    annotated_trees.landmarks(tmp_path / "r", "roxford5k")
    assert evaluate(run, f"roxford:{tmp_path / 'r'}", "--on", "retrieve") == 0
    assert "medium" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("held_out", "queries", "classes"),
    [("cd", 4, 2), ("bd", 8, 4)],
    ids=["of this data", "of other data"],
)
def test_a_run_of_metric_learning_is_evaluated_on_held_out_classes(
    run: Path,
    tmp_path: Path,
    held_out: str,
    queries: int,
    classes: int,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for i in range(8):
        rectangles(8).image(i).save(tmp_path / f"{i}.png")
    lines = [f"{i}.png,{'abcd'[i % 4]}" for i in range(8)]
    (tmp_path / "list.csv").write_text("\n".join(["file,label", *lines]))
    (run / "results.json").write_text(
        json.dumps({"task": "metric", "classes": {"test": list(held_out)}})
    )
    assert evaluate(run, tmp_path / "list.csv", "--on", "retrieve") == 0
    text = capfd.readouterr().out
    assert (
        f"{queries} queries" in text and f", {classes} " in text
    )  # all classes if the data is not that of the run


def test_own_classes_and_attention_jaccard(
    run: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(run, data, "--on", "imagenet-a,jaccard", "-o", tmp_path / "out") == 0
    printed = capsys.readouterr().out
    found = results(tmp_path / "out")
    assert found["imagenet-a"]["images"] == found["jaccard"]["images"] == 3
    assert found["imagenet-a"]["classes"] == 3
    assert 0 <= found["jaccard"]["jaccard_compat"] <= found["jaccard"]["jaccard"] <= 100
    assert f"top-1 {found['imagenet-a']['accuracy']:.2f} of 3 classes" in printed
    assert f"attention Jaccard {found['jaccard']['jaccard']:.2f}" in printed
