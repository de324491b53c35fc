"""`cenote evaluate` as a user runs it: no broken file, no picture and no earlier run costs a figure."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cenote.cli import _judging, main
from cenote.data import open_dataset
from cenote.data.corruptions import SEVERITIES
from cenote.evaluate.corruption import as_judged
from cenote.models import PooledModel, load, save_model
from tests.evaluate.shapes import corners, rectangles, small_model

IMAGES = 6


def evaluate(*argv: object) -> int:
    return main(["evaluate", *map(str, argv)])


def write_images(folder: Path, split: str = "val") -> Path:
    """A list with classes, boxes and masks: half of the images to choose on, half to be judged."""
    data, lines = rectangles(IMAGES), ["file,label,split,mask,x1,y1,x2,y2"]
    for i in range(IMAGES):
        data.image(i).save(folder / f"{i}.png")
        Image.fromarray((data.mask(i) == 1).astype(np.uint8)).save(folder / f"{i}-mask.png")
        row = (f"{i}.png", "abc"[i % 3], split if i < 3 else "test", f"{i}-mask.png", *corners(i))
        lines.append(",".join(map(str, row)))
    (folder / "list.csv").write_text("\n".join(lines))
    return folder / "list.csv"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    save_model(small_model(), tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return write_images(tmp_path / "data")


def results(out: Path) -> Any:
    return json.loads((out / "results.json").read_text())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two corruptions at two severities; the names of the passes that were looked at."""
    from cenote.evaluate import corruption, marks

    passes: list[str] = []
    plain, mark = corruption.corruption, marks.mark

    def small(*given: Any, **options: Any) -> Any:
        return plain(*given, corruptions=["fog", "contrast"], severities=(1, 3), **options)

    def counting(model: Any, dataset: Any, *given: Any, **options: Any) -> Any:
        passes.append(dataset.name)
        return mark(model, dataset, *given, **options)

    monkeypatch.setattr(corruption, "corruption", small)
    monkeypatch.setattr(marks, "mark", counting)
    return passes


def test_an_unreadable_first_image(run: Path, data: Path, tmp_path: Path, quick: list[str]) -> None:
    (data.parent / "3.png").write_bytes(b"")  # the first of those judged
    assert evaluate(run, data, "--on", "corruption,background", "-o", tmp_path / "out") == 0
    report = results(tmp_path / "out")
    assert report["corruption"]["images"] == 2 and report["background"]["images"] <= 2
    names = {path.name for path in (tmp_path / "out").iterdir()}
    pictures = {"corruption.png", "corruptions.jpg", "severities.jpg", "background.png", "variants.jpg"}
    assert names == {"results.json", "index.html", "page.json", *pictures}, "and nothing is left of the passes"


def test_no_picture_fails_a_report(
    run: Path, data: Path, tmp_path: Path, quick: list[str], monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def broken(*given: Any, **options: Any) -> Any:
        raise RuntimeError("no font")

    from cenote.show import robustness

    for name in ("draw_corruption_bars", "corruption_sheet", "severity_sheet"):
        monkeypatch.setattr(robustness, name, broken)
    assert evaluate(run, data, "--on", "corruption", "-o", tmp_path / "out") == 0
    assert "corruption.png was not drawn: no font" in capfd.readouterr().err
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"results.json", "index.html", "page.json"}


def test_pictures_show_what_was_judged(
    run: Path, data: Path, tmp_path: Path, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cenote.show import robustness

    seen: dict[tuple[str, int], Any] = {}

    def sheet(corrupted: Any) -> None:
        seen.update({(name, k): np.asarray(corrupted(name, k)) for name in ("fog", "contrast") for k in (1, 3)})

    monkeypatch.setattr(robustness, "severity_sheet", sheet)
    assert evaluate(run, data, "--on", "corruption", "--seed", 5, "-o", tmp_path / "out") == 0
    judged, model = open_dataset(str(data)).split("test"), load(run)
    for (name, k), picture in seen.items():
        assert np.array_equal(picture, np.asarray(as_judged(judged, 5, model, name, k).image(0)))
    assert len(seen) == 4


def test_passes_are_of_this_model_and_these_images(
    run: Path, data: Path, tmp_path: Path, quick: list[str], monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    from cenote.evaluate import marks

    counting = marks.mark
    stops: list[int] = []

    def stopping(*given: Any, **options: Any) -> Any:
        if stops and len(quick) == stops[0]:
            raise KeyboardInterrupt
        return counting(*given, **options)

    monkeypatch.setattr(marks, "mark", stopping)

    def passes(stop: int | None) -> int:
        quick.clear()
        stops[:] = [] if stop is None else [stop]
        code = evaluate(run, data, "--on", "corruption", "-o", tmp_path / "out")
        assert code == (0 if stop is None else 130)
        assert ("interrupted; the same command goes on" in capfd.readouterr().err) == (stop is not None)
        return len(quick)

    passes(3)
    assert passes(None) == 2  # of five
    passes(3)
    save_model(small_model("gem"), run)  # another model in the same place
    assert passes(None) == 5
    passes(3)
    (data.parent / "4.png").write_bytes((data.parent / "5.png").read_bytes())
    assert passes(None) == 5
    passes(3)
    data.write_text(data.read_text().replace("5.png,c", "5.png,a"))
    assert passes(None) == 5


def test_passes_are_kept_until_results_are_written(
    run: Path, data: Path, tmp_path: Path, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cenote.show import robustness_text

    plain = robustness_text.corruption_text
    monkeypatch.setattr(robustness_text, "corruption_text", lambda report: 1 / 0)
    assert evaluate(run, data, "--on", "corruption", "-o", tmp_path / "out") == 1
    monkeypatch.setattr(robustness_text, "corruption_text", plain)
    quick.clear()
    assert evaluate(run, data, "--on", "corruption", "-o", tmp_path / "out") == 0 and not quick


def test_imagenet_9_with_pictures(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for variant in ("original", "mixed_same", "mixed_rand"):
        for k, name in enumerate("abc"):
            folder = tmp_path / "in9" / variant / "val" / f"0{k}_{name}"
            folder.mkdir(parents=True)
            rectangles(3).image(k).save(folder / "0.JPEG")
            if variant == "mixed_rand":
                (folder / "0.JPEG").write_bytes(b"")
    options = ["--on", "background", "-o", tmp_path / "out", "--json"]
    assert evaluate(run, f"imagenet-9:{tmp_path / 'in9'}", *options) == 0, capfd.readouterr().err
    said = capfd.readouterr()
    assert "not drawn" not in said.err and (tmp_path / "out" / "background.png").exists()
    accuracy = json.loads(said.out, parse_constant=pytest.fail)["background"]["accuracy"]
    assert accuracy["mixed_rand"] is None and accuracy["original"] is not None  # no NaN in JSON
    assert "NaN" not in (tmp_path / "out" / "results.json").read_text()
    assert not (tmp_path / "out" / "variants.jpg").exists()


def test_imagenet_c_with_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for level in SEVERITIES:
        for k, wnid in enumerate(("n01440764", "n01443537")):
            folder = tmp_path / "c" / "weather" / "fog" / str(level) / wnid
            folder.mkdir(parents=True)
            rectangles(3).image(k).save(folder / "0.JPEG")
    model = small_model(classes=2)
    model.class_names = list(open_dataset(f"imagenet-c:{tmp_path / 'c'}").classes)
    save_model(model, tmp_path / "run")
    totals = []
    plain = _judging.Session.progress
    monkeypatch.setattr(
        _judging.Session, "progress", lambda self, what, total: totals.append(total) or plain(self, what, total)
    )
    command = ["--on", "corruption", "-o", tmp_path / "out"]
    assert evaluate(tmp_path / "run", f"imagenet-c:{tmp_path / 'c'}", *command) == 0
    assert totals == [10]  # images, not images times passes
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "results.json",
        "index.html",
        "page.json",
        "corruption.png",
    }


def test_the_threshold_that_is_kept(run: Path, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept = run / "localization.json"
    assert evaluate(run, data, "--on", "localize") == 0
    honest = json.loads(kept.read_text())
    assert honest["chosen_on"] | {"data": ""} == {"data": "", "split": "val", "images": 3, "oracle": False}
    assert honest["max_box_acc"] >= 0 and honest["centred_box"] >= 0
    before = kept.read_text()
    assert evaluate(run, data, "--split", "val", "--on", "localize") == 0  # no others to choose on: an oracle
    said = capfd.readouterr().err
    assert kept.read_text() == before and "the threshold was not kept (it is an oracle's" in said
    kept.unlink()
    assert evaluate(run, data, "--split", "val", "--on", "localize", "-o", tmp_path / "out") == 0
    oracle = json.loads(kept.read_text())["chosen_on"]
    assert (oracle["split"], oracle["oracle"], oracle["images"]) == ("val", True, 3)
    assert main(["localize", str(run), str(data.parent / "0.png"), "-o", str(tmp_path / "boxes")]) == 0
    assert "3 images of data, val, an oracle's" in capfd.readouterr().err
    assert evaluate(run, data, "--on", "localize") == 0  # what validation chose takes its place
    assert json.loads(kept.read_text()) == honest


def test_a_read_only_run_loses_nothing(
    run: Path, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (run / "localization.json").mkdir()  # nothing can be written there, not even by root
    assert evaluate(run, data, "--on", "localize", "-o", tmp_path / "out") == 0
    said, report = capfd.readouterr(), results(tmp_path / "out")["localize"]
    assert "MaxBoxAccV2" in said.out and "the threshold was not kept (" in said.err
    assert f"--threshold {report['threshold']:.2f}" in said.err
    assert {"curve.png", "cases.jpg", "results.json", "index.html", "page.json"} == {
        path.name for path in (tmp_path / "out").iterdir()
    }


def test_discovery_goes_on(run: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                           capfd: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    from cenote.evaluate import discover

    given: list[Any] = []

    def interrupted(*_: Any, **options: Any) -> Any:
        given.append(options["journal"])
        raise KeyboardInterrupt

    monkeypatch.setattr(discover, "discover", interrupted)
    for out, told in (([], ""), (["-o", tmp_path / "out"], "interrupted; the same command goes on\n")):
        assert evaluate(run, data, "--on", "discover", *out) == 130
        assert capfd.readouterr().err == told  # only where it does
    assert given == [None, tmp_path / "out" / ".sightings.jsonl"]


def test_a_segmentation_of_another_model_starts_afresh(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    data = write_images(tmp_path / "data", "train")
    from cenote.train import segment
    from cenote.train.engine import Stopped

    resumed: list[bool] = []
    ends = False

    def found(model: Any, train: Any, judged: Any, folder: Path, settings: Any, resume: bool, say: Any) -> Any:
        resumed.append(resume)
        assert resume == (folder / "checkpoint.pt").exists()
        (folder / "checkpoint.pt").write_bytes(b"half")
        if not ends:
            raise Stopped("interrupted; it goes on with --resume")
        report = {"miou": 1.0, "macc": 1.0, "aacc": 1.0, "images": 3, "unreadable": ["4.png: its mask is damaged"]}
        return SimpleNamespace(report=report, scores={0: 1.0}, predict=None)

    monkeypatch.setattr(segment, "segment", found)
    command = [run, data, "--on", "segment", "-o", tmp_path / "out"]
    assert evaluate(*command) == 130 and evaluate(*command) == 130
    save_model(small_model("gem"), run)
    assert evaluate(*command) == 130
    ends = True
    assert capfd.readouterr().err == "interrupted; the same command goes on\n" * 3
    assert evaluate(*command) == 0 and resumed == [False, True, False, True]
    assert "(1 image)" in capfd.readouterr().out and results(tmp_path / "out")["segment"]["images"] == 1
    assert not list((tmp_path / "out" / "segment").iterdir())
    assert evaluate(*command) == 0 and resumed[-1] is False


def test_the_model_is_where_it_is_fast(run: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    moved: list[str] = []
    monkeypatch.setattr(PooledModel, "to", lambda self, device: moved.append(device) or self)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(_judging.PROTOCOLS, "classify", lambda session: ({"accuracy": math.nan}, "done"))
    assert evaluate(run, data) == 0 and moved[-1] == "cuda"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--on", "classify,lokalize"], "no protocol 'lokalize'; did you mean 'localize'? (classify, knn"),
        (["--on", ","], "no protocol is named: classify, knn"),
        (["-o", "FILE"], "is a file: name a folder"),
        (["-o", "FILE/deeper"], "is a file: name a folder"),
    ],
)
def test_wrong_input_is_a_sentence_at_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    (tmp_path / "file").write_text("mine")
    options = [option.replace("FILE", str(tmp_path / "file")) for option in options]
    assert evaluate("no-run", "no-data", *options) == 2  # before either is opened
    said = capfd.readouterr().err
    assert sentence in said and len(said.splitlines()) == 1


def test_names_with_blanks(run: Path, data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (data.parent / "4.png").write_bytes(b"")
    (data.parent / "5.png").write_bytes(b"")
    assert evaluate(run, data, "--on", " classify, classify,,localize") == 0
    said = capfd.readouterr().out
    assert said.startswith("classify\n") and "\nlocalize\n" in said
    assert "1 image of test: top-1" in said and "\n1 image, 64 x 64 pixels" in said


def test_retrieval_with_a_picture(run: Path, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data.write_text(data.read_text().replace(",val,", ",test,"))
    (data.parent / "5.png").write_bytes(b"")  # of class c, whose other image then has nothing to find
    assert evaluate(run, data, "--on", "retrieve", "-o", tmp_path / "out") == 0
    said, report = capfd.readouterr(), results(tmp_path / "out")["retrieve"]
    assert said.out.split()[:7] == ["R@1", "R@2", "R@4", "R@8", "P@1", "RP", "MAP@R"] and "not drawn" not in said.err
    assert "percent; 4 queries of test, 3 classes, against the others" in said.out and "5.png" in said.out
    assert (report["images"], report["queries"], report["without_match"]) == (5, 4, 1) and report["recall@8"] == 100
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "results.json",
        "index.html",
        "page.json",
        "retrieval.jpg",
    }


def test_queries_and_gallery_are_sets_of_their_own(run: Path, data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data.write_text(data.read_text().replace(",val,", ",query,").replace(",test,", ",gallery,"))
    assert evaluate(run, data, "--on", "retrieve") == 0
    assert "3 queries of query, 3 classes, against 3 images of the gallery" in capfd.readouterr().out
    assert evaluate(run, data, "--on", "retrieve", "--split", "gallery") != 0  # three classes of one image each
    assert "none of 3 queries has another vector of its class" in capfd.readouterr().err


def test_landmarks_have_a_table_of_their_own(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from tests.data.benchmarks import trees2

    (tmp_path / "r").mkdir()
    trees2.landmarks(tmp_path / "r", "roxford5k")
    assert evaluate(run, f"roxford:{tmp_path / 'r'}", "--on", "retrieve") == 0
    assert "medium" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("held", "told"), [("cd", "4 queries of unseen classes, 2"), ("bd", "8 queries of all splits, 4")]
)
def test_a_run_of_metric_learning_is_judged_on_classes_it_held_out(
    run: Path, tmp_path: Path, held: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for i in range(8):
        rectangles(8).image(i).save(tmp_path / f"{i}.png")
    lines = [f"{i}.png,{'abcd'[i % 4]}" for i in range(8)]
    (tmp_path / "list.csv").write_text("\n".join(["file,label", *lines]))
    (run / "results.json").write_text(json.dumps({"task": "metric", "classes": {"test": list(held)}}))
    assert evaluate(run, tmp_path / "list.csv", "--on", "retrieve") == 0
    assert told in capfd.readouterr().out  # of other data, or data that has changed, everything
