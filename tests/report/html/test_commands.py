"""`cenote evaluate`, `discover` and `tournament` write a page beside their results, with their own numbers in it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from cenote.cli import main
from cenote.metrics.boxes import box_iou
from cenote.models import save_model
from cenote.report.blocks import Bars, Boxes, Maps, Page, Panels, Scatter, Table
from cenote.report.html import read_page
from tests.cli.test_discover import ball
from tests.cli.test_evaluate import write_images
from tests.report.html.pages import Parsed
from tests.toy_models import localizer


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CENOTE_CACHE", str(tmp_path / "cache"))


def run(*argv: object) -> int:
    return main([str(one) for one in argv])


def sound(folder: Path) -> Page:
    parsed = Parsed((folder / "index.html").read_text(encoding="utf-8"))
    assert not parsed.unbalanced and len(parsed.values("id")) == len(set(parsed.values("id")))
    return read_page(folder)


def of(page: Page, kind: type) -> list[Any]:
    return [block for block in page.blocks if isinstance(block, kind)]


def check_overlaps(boxes: Boxes, side: int | None = None) -> int:
    """The IoU that is told is that of the boxes that are drawn; how many there were.

    `side`: boxes were judged as localization does, in whole pixels of a square map, truth truncated, both ends counted.
    """
    told = [case for case in boxes.photos if case.iou is not None and case.predicted]
    for case in told:
        found, truth = np.array(case.predicted), np.array(case.truth)
        if side is not None:
            found, truth = (
                np.rint(found * side),
                np.trunc(truth * side + 0.005),
            )  # shares have four digits
            found[:, 2:], truth[:, 2:] = found[:, 2:] + 1, truth[:, 2:] + 1
        assert box_iou(found, truth).max() == pytest.approx(case.iou, abs=1e-3)
    return len(told)


def test_evaluate(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    save_model(localizer(), tmp_path / "run")
    (tmp_path / "data").mkdir()
    data, out = write_images(tmp_path / "data", split="test"), tmp_path / "out"
    assert (
        run(
            "evaluate",
            tmp_path / "run",
            data,
            "--on",
            "classify,localize,background,retrieve",
            "-o",
            out,
        )
        == 0
    )
    said = capfd.readouterr()
    assert str(out / "index.html") in said.out
    page, report = sound(out), json.loads((out / "results.json").read_text())
    rows = {(row[0], row[1]): row[2] for row in of(page, Table)[0].rows}
    assert rows["classify", "top-1 accuracy"] == f"{report['classify']['accuracy']:.1f}"
    assert rows["background", "gap of backgrounds"] == f"{report['background']['gap']:.1f}"
    assert rows["retrieve", "MAP@R"] == f"{report['retrieve']['map@r']:.1f}"
    assert check_overlaps(of(page, Boxes)[0], 64) > 0 and len(of(page, Boxes)[0].photos) == 6
    assert all(
        0 <= v <= 1
        for photo in of(page, Maps)[0].photos
        for one in photo.maps
        for v in sum(one.values, ())
    )
    right = [
        cell.correct
        for panels in of(page, Panels)
        for panel in panels.rows
        for cell in panel.results
    ]
    told = [n["right"] for case in report["retrieve"]["cases"] for n in case["neighbours"]]
    assert sorted(map(bool, right)) == sorted(told)
    bars = {bar.name: bar.value for block in of(page, Bars) for bar in block.bars}
    assert bars["Original"] == pytest.approx(report["background"]["accuracy"]["original"])


def test_discover(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder, out = tmp_path / "data", tmp_path / "out"
    folder.mkdir()
    lines = [
        ",".join(map(str, [f"{i}.png", *ball(folder / f"{i}.png", (224, 160 + 32 * i))]))
        for i in range(2)
    ]
    (folder / "annotations.csv").write_text("\n".join(["file,x1,y1,x2,y2", *lines]) + "\n")
    assert run("discover", folder, "-o", out, "--method", "lost") == 0
    assert "index.html" in capfd.readouterr().out
    page, report = sound(out), json.loads((out / "results.json").read_text())
    assert of(page, Bars)[0].bars[0].value == pytest.approx(report["methods"]["lost"]["corloc"])
    assert sum(check_overlaps(block) for block in of(page, Boxes)) > 0
    assert len(of(page, Boxes)[-1].photos) == 2  # what was found in each photograph


def test_tournament(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    save_file(timm.create_model("test_vit").state_dict(), tmp_path / "test_vit.safetensors")
    for i, name in enumerate(["a", "<b>"]):
        (tmp_path / "data" / name).mkdir(parents=True)
        for j in range(6):
            pixels = np.random.default_rng(j).integers(0, 200, (40, 50, 3), np.uint8) + 50 * i
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "data" / name / f"{j}.png")
    options = [
        "--backbone",
        "test_vit",
        "--weights",
        tmp_path / "test_vit.safetensors",
        "--epochs",
        1,
        "--seeds",
        2,
    ]
    out = tmp_path / "run"
    assert (
        run(
            "tournament",
            tmp_path / "data",
            "-o",
            out,
            "--pools",
            "gap",
            "simpool",
            *options,
            "--lr",
            "0.01",
        )
        == 0
    )
    assert str(out / "index.html") in capfd.readouterr().out
    page, report = sound(out), json.loads((out / "results.json").read_text())
    names = [row["name"] for row in report["standings"]]
    assert [row[2] for row in of(page, Table)[0].rows] == names
    assert {point.name for point in of(page, Scatter)[0].points} == set(names)
    assert {one.name for photo in of(page, Maps)[1].photos for one in photo.maps} == set(names)
    assert {"a", "<b>"} >= {photo.caption for photo in of(page, Maps)[0].photos}
    assert page.seconds == pytest.approx(sum(report["seconds"].values()))
