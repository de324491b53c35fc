"""Pictures of localization: boxes lie where they were told, every number of the table is the report's, pages turn."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cenote.evaluate.localize import Localization, localize
from cenote.report.curves import draw_curves
from cenote.report.localization import (
    PAGE,
    TRUTH,
    Gallery,
    case_page,
    draw_boxes,
    write_localization,
)
from cenote.report.localization_text import localization_text
from cenote.report.maps import BOX_COLOUR
from cenote.report.sheet import MARGIN
from tests.synthetic import rectangles
from tests.toy_models import localizer


@pytest.fixture(scope="module")
def result() -> Localization:
    return localize(localizer(), rectangles(), rectangles(6), resamples=20, each=3)


def test_boxes_lie_where_they_were_told() -> None:
    photo = Image.new("RGB", (100, 80), (10, 10, 10))
    picture = np.asarray(
        draw_boxes(photo, [(20, 10, 60, 50)], [(160, 80, 200, 158)], (200, 160)).convert("RGB")
    )
    found = np.argwhere((picture == BOX_COLOUR).all(-1))
    assert (found.min(0) == [6, 11]).all() and (
        found.max(0) == [23, 28]
    ).all()  # half the size, inside a dark rim
    true = np.argwhere((picture == TRUTH).all(-1))
    assert (true.min(0) == [40, 80]).all() and (true.max(0) == [78, 99]).all()
    assert np.asarray(photo).max() == 10  # the photograph itself is left alone


def test_the_page_begins_with_the_worst(result: Localization) -> None:
    page = case_page(result.cases, result.judged, result.report)
    assert page is not None
    one = case_page(
        [case for case in result.cases if case.group == "worst"], result.judged, result.report
    )
    assert one is not None and page.height > 2 * one.height
    worst = np.asarray(page.crop((0, 0, one.width, one.height)))
    assert np.abs(worst.astype(int) - np.asarray(one)).mean() < 1
    assert case_page([], result.judged, result.report) is None


def test_the_heading_names_the_origin_of_the_threshold(result: Localization) -> None:
    pages = [
        case_page(result.cases, result.judged, {**result.report, "threshold_from": origin})
        for origin in ("val", "test")
    ]
    chosen, oracle = (np.asarray(page).astype(int) for page in pages)
    rows = np.flatnonzero(np.abs(chosen - oracle).sum((1, 2)))
    assert len(rows) > 0 and rows.max() < MARGIN + 34, "nothing else differs"


def test_the_curve_marks_both_thresholds(result: Localization) -> None:
    figure = draw_curves(result.report, result.thresholds, result.curves)
    (axes,) = figure.axes
    points = {(round(float(x), 4), round(float(y), 3)) for line in axes.lines if line.get_marker() == "o"
              for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)}  # fmt: skip
    for key in ("chosen", "oracle"):
        best = result.report[key]["max_box_acc_v2"]
        for t, share in zip(best["thresholds"], best["per_iou"], strict=True):
            assert (round(t, 4), round(share, 3)) in points
    assert axes.get_xlim()[0] < 0  # the ring of a threshold of 0 is whole
    alone: dict[str, Any] = {**result.report, "chosen": None}
    figures = [figure, draw_curves(alone, result.thresholds, {"test": result.curves["test"]})]
    assert len({figure.axes[0].get_title(loc="left") for figure in figures}) == 2, (
        "the title names the origin"
    )


def test_files(result: Localization, tmp_path: Path) -> None:
    written = write_localization(result, tmp_path)
    assert [path.name for path in written] == ["curve.png", "cases.jpg"]
    assert {path.name for path in tmp_path.iterdir()} == {"curve.png", "cases.jpg"}
    for path in written:
        Image.open(path).load()
    nothing = Localization(result.report, result.judged, result.thresholds)
    assert write_localization(nothing, tmp_path / "none") == [] and not (tmp_path / "none").exists()


def test_the_text_has_the_report_s_numbers(result: Localization) -> None:
    text = localization_text(result.report)
    for key in ("chosen", "oracle"):
        for name, found in result.report[key].items():
            assert f"{found['score']:.1f}" in text, name
    assert (
        f"PxAP {result.report['pxap']:.1f}" in text
        and f"threshold {result.report['threshold']:.2f}" in text
    )
    assert max(map(len, text.splitlines())) <= 100
    poor, rich = (
        localization_text(
            {
                **result.report,
                "chosen": {**result.report["chosen"], "centred_box": {"score": score}},
            }
        )
        for score in (100.0, -1.0)
    )
    assert len(poor.splitlines()) > len(rich.splitlines()), "a warning where a fixed box is better"
    without = localization_text(
        {**result.report, "chosen": None, "threshold_from": "test", "unknown_class": 2}
    )
    assert "validation" in text and "validation" not in without
    assert any(
        re.search(r"\b2 images\b", line)
        for line in set(without.splitlines()) - set(text.splitlines())
    )


def test_the_gallery_turns_pages(tmp_path: Path) -> None:
    gallery = Gallery(tmp_path, "heading")
    photo, seen = Image.new("RGB", (60, 40), (90, 90, 90)), np.eye(8, dtype=np.float32)
    for i in range(PAGE + 1):
        gallery.add(photo, f"p{i}", [(0, 0, 30, 20)], seen, f"p{i}.jpg")
    assert (tmp_path / "contact_sheet_1.jpg").exists() and not (
        tmp_path / "contact_sheet_2.jpg"
    ).exists()
    gallery.turn()
    gallery.turn()  # nothing is left
    assert sorted(path.name for path in tmp_path.glob("contact*")) == [
        "contact_sheet_1.jpg",
        "contact_sheet_2.jpg",
    ]
    assert len(list(tmp_path.glob("p*.jpg"))) == PAGE + 1
