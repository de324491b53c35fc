"""Pictures of localization: boxes lie where they were told, every number of the table is the report's, pages turn."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cenote.evaluate.wsol import LocalizationReport, localize
from cenote.report.localization import (
    Gallery,
    case_page,
    draw_curves,
)
from cenote.report.maps import BOX_COLOUR, TRUTH, draw_boxes
from cenote.report.sheet import ENTRIES_PER_SHEET, MARGIN
from tests.synthetic import rectangles
from tests.toy_models import localizer


@pytest.fixture(scope="module")
def result() -> LocalizationReport:
    return localize(localizer(), rectangles(), rectangles(6), resamples=20, cases=3)


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


def test_the_page_begins_with_the_worst(result: LocalizationReport) -> None:
    page = case_page(result.cases, result.dataset, result.to_json())
    assert page is not None
    one = case_page(
        [case for case in result.cases if case.group == "worst"], result.dataset, result.to_json()
    )
    assert one is not None and page.height > 2 * one.height
    worst = np.asarray(page.crop((0, 0, one.width, one.height)))
    assert np.abs(worst.astype(int) - np.asarray(one)).mean() < 1
    assert case_page([], result.dataset, result.to_json()) is None


def test_the_heading_names_the_origin_of_the_threshold(result: LocalizationReport) -> None:
    pages = [
        case_page(result.cases, result.dataset, {**result.to_json(), "threshold_from": origin})
        for origin in ("val", "test")
    ]
    chosen, oracle = (np.asarray(page).astype(int) for page in pages)
    rows = np.flatnonzero(np.abs(chosen - oracle).sum((1, 2)))
    assert len(rows) > 0 and rows.max() < MARGIN + 34, "nothing else differs"


def test_the_curve_marks_both_thresholds(result: LocalizationReport) -> None:
    figure = draw_curves(result.to_json(), result.thresholds, result.curves)
    (axes,) = figure.axes
    points = {(round(float(x), 4), round(float(y), 3)) for line in axes.lines if line.get_marker() == "o"
              for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)}  # fmt: skip
    for key in ("chosen", "oracle"):
        best = result.to_json()[key]["max_box_acc_v2"]
        for t, share in zip(best["thresholds"], best["per_iou"], strict=True):
            assert (round(t, 4), round(share, 3)) in points
    assert axes.get_xlim()[0] < 0  # the ring of a threshold of 0 is whole
    alone: dict[str, Any] = {**result.to_json(), "chosen": None}
    figures = [figure, draw_curves(alone, result.thresholds, {"test": result.curves["test"]})]
    assert len({figure.axes[0].get_title(loc="left") for figure in figures}) == 2, (
        "the title names the origin"
    )


def test_the_table_has_the_report_s_numbers(result: LocalizationReport) -> None:
    text = result.table("test")
    assert result.chosen is not None and result.oracle is not None
    for scores in (result.chosen, result.oracle):
        for name, score in scores.items():
            assert f"{score['score']:.1f}" in text, name
    assert f"PxAP {result.pxap:.1f}" in text and f"threshold {result.threshold:.2f}" in text
    assert max(map(len, text.splitlines())) <= 100
    poor, rich = (
        replace(result, chosen={**result.chosen, "centred_box": {"score": score}}).table("test")
        for score in (100.0, -1.0)
    )
    assert len(poor.splitlines()) > len(rich.splitlines()), "a warning if a fixed box is better"
    oracle = replace(result, chosen=None, threshold_from="test", unknown_class=2).table("test")
    assert "validation" in text and "validation" not in oracle
    new_lines = set(oracle.splitlines()) - set(text.splitlines())
    assert any(re.search(r"\b2 images\b", line) for line in new_lines)


def test_the_gallery_turns_pages(tmp_path: Path) -> None:
    gallery = Gallery(tmp_path, "heading")
    photo, seen = Image.new("RGB", (60, 40), (90, 90, 90)), np.eye(8, dtype=np.float32)
    for i in range(ENTRIES_PER_SHEET + 1):
        gallery.add(photo, f"p{i}", [(0, 0, 30, 20)], seen, f"p{i}.jpg")
    assert (tmp_path / "contact_sheet_1.jpg").exists() and not (
        tmp_path / "contact_sheet_2.jpg"
    ).exists()
    gallery.sheets.save()
    gallery.sheets.save()  # nothing is left
    assert sorted(path.name for path in tmp_path.glob("contact*")) == [
        "contact_sheet_1.jpg",
        "contact_sheet_2.jpg",
    ]
    assert len(list(tmp_path.glob("p*.jpg"))) == ENTRIES_PER_SHEET + 1
