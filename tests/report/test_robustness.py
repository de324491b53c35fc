"""Sheets hold every variant where it belongs, and bars are as long as the figures say."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cenote.data import Record, open_dataset, pack
from cenote.data.backgrounds import VARIANTS, with_background
from cenote.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from cenote.evaluate.background import BackgroundReport
from cenote.evaluate.corruption import CorruptionReport
from cenote.report.robustness import (
    corruption_sheet,
    draw_corruption_bars,
    draw_variant_bars,
    severity_sheet,
    variant_sheet,
)
from cenote.report.sheet import GAP, MARGIN

SIDE = 64
TOP = MARGIN + 34


def cell(sheet: Image.Image, place: int, columns: int, across: int = 0) -> np.ndarray:
    """The picture at a place of a sheet of square pictures, one an entry."""
    row, column = divmod(place, columns)
    left, top = MARGIN + column * (SIDE + MARGIN) + across, TOP + row * (SIDE + 26 + MARGIN)
    return np.asarray(sheet)[top : top + SIDE, left : left + SIDE]


def test_a_sheet_of_variants() -> None:
    world = open_dataset("world/tiny").select([3, 1, 0])
    sheet = variant_sheet(world, 1, seed=2, side=SIDE)
    assert world.image(1).size == (SIDE, SIDE)  # so that nothing is scaled
    for place, variant in enumerate(VARIANTS):
        assert np.array_equal(
            cell(sheet, place, 4), np.asarray(with_background(world, variant, 2).image(1))
        ), variant


def test_what_has_no_variant_is_told(tmp_path: Path) -> None:
    Image.new("RGB", (20, 20), "red").save(tmp_path / "a.png")
    Image.fromarray(np.ones((20, 20), np.uint8)).save(
        tmp_path / "m.png"
    )  # all object, no background
    dataset = pack([Record("a.png", "a", masks=("m.png",)), Record("a.png", "a")], tmp_path, "made")
    sheet = variant_sheet(dataset, 0, side=SIDE)
    assert (cell(sheet, 7, 4) == cell(sheet, 7, 4)[0, 0]).all()  # an empty place, not a crash


def test_sheets_of_corruptions() -> None:
    image = open_dataset("world/tiny").image(0)

    def corrupted(name: str, severity: int) -> Image.Image:
        return corrupt(image, name, severity, 1)

    sheet = corruption_sheet(image, corrupted, 4, side=SIDE)
    assert np.array_equal(cell(sheet, 0, 4), np.asarray(image))
    for place, name in enumerate(CORRUPTIONS, 1):
        assert np.array_equal(cell(sheet, place, 4), np.asarray(corrupt(image, name, 4, 1))), name
    rows = severity_sheet(corrupted, ["fog", "snow"], side=SIDE)
    for place, name in enumerate(("fog", "snow")):
        for severity in SEVERITIES:
            width = 5 * (SIDE + GAP) - GAP + MARGIN
            shown = cell(rows, 0, 1, place * width + (severity - 1) * (SIDE + GAP))
            assert np.array_equal(shown, np.asarray(corrupt(image, name, severity, 1)))
    assert severity_sheet(corrupted, side=20).width > 15 * 20


def lengths(figure: Any) -> list[float]:
    return [bar.get_width() for bar in figure.axes[0].containers[0]]


def test_bars() -> None:
    shares = {variant: 90.0 - 10 * place for place, variant in enumerate(VARIANTS)}
    report: dict[str, Any] = {"accuracy": shares, "gap": 10.0, "images": 7}
    figure = draw_variant_bars(report)
    assert lengths(figure) == list(shares.values())
    assert "gap +10.0" in figure.axes[0].get_title(loc="right")
    published = {
        "accuracy": {"original": 50.0, "no_fg": 5.0},
        "gap": None,
        "images": {"original": 4, "no_fg": 4},
    }
    assert lengths(draw_variant_bars(published)) == [50.0, 5.0]
    unread = {**report, "accuracy": {**shares, "mixed_rand": float("nan")}, "gap": float("nan")}
    assert len(lengths(draw_variant_bars(unread))) == 7
    by = {"fog": {"1": 60.0, "5": 20.0}, "snow": {"1": 50.0, "5": 30.0}}
    means = {"fog": 40.0, "snow": 40.0}
    whole = {
        "accuracy": by,
        "by_corruption": means,
        "clean": 70.0,
        "mean_accuracy": 40.0,
        "mce": None,
        "images": 9,
        "notes": [],
    }
    figure = draw_corruption_bars(whole)
    assert lengths(figure) == [40.0, 40.0]
    ticks = {line.get_xdata()[0] for line in figure.axes[0].lines}  # type: ignore[index]
    assert {60.0, 20.0, 50.0, 30.0, 70.0} <= ticks
    draw_corruption_bars({**whole, "clean": None, "mce": 80.0})


def test_table_of_backgrounds() -> None:
    report = BackgroundReport(
        accuracy={"original": 80.0, "mixed_same": 70.0, "mixed_rand": 60.0},
        gap=10.0,
        gap_interval=[4.0, 16.0],
        images=50,
        unreadable=[f"{i}.png: empty" for i in range(7)],
        same_images=True,
        dropped=2,
        left_out={"no_class": 0, "unknown_class": 3, "no_mask": 1},
    )
    text = report.table("test")
    for expected in ("Mixed-Same   70.00", "+10.00 (95%: +4.00 to +16.00)", "50 images"):
        assert expected in text
    counts = set(re.findall(r"\d images?", text))
    assert {"2 images", "3 images", "1 image"} <= counts and not re.search(r"\b0 image", text)
    assert "4.png" in text and "5.png" not in text and "2 more" in text
    nan = float("nan")
    unread = replace(report, accuracy={"original": nan}, gap=nan, left_out={"no_mask": 1})
    text = unread.table("test")
    assert "nan" not in text and "1 image " in text


def test_table_of_corruptions() -> None:
    report = CorruptionReport(
        clean=70.0,
        accuracy={"fog": {"1": 60.0, "5": 20.0}},
        by_corruption={"fog": 40.0},
        mean_accuracy=40.0,
        mce=81.23,
        relative_mce=None,
        notes=["so it is"],
        images=9,
        left_out={},
        unreadable=[],
        seed=0,
    )
    text = report.table("test")
    for expected in ("fog", "60.0   20.0   40.0", "mCE 81.2\n", "note: so it is"):
        assert expected in text
