"""Blocks say what their values say: sorting keys, axes, names that never touch, veils, boxes; ink is readable."""

import io
import math
import re
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import cenote.report
from cenote.report.blocks import (
    Bar,
    Bars,
    Boxes,
    Page,
    PhotoWithBoxes,
    Table,
    TableColumn,
    map_values,
    picture_of,
    shrink_map,
)
from cenote.report.html import brightest, render, sort_key, veil_of
from tests.report.html.pages import Parsed, hill, photo


def opened(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(b64decode(uri.partition(",")[2])))


@pytest.mark.parametrize(
    ("value", "key"),
    [("71.5 ± 0.4", 71.5), ("1.2M", 1.2e6), ("900", 900.0), ("3.5k", 3500.0), ("-", None), ("failed", None),
     (None, None), (12, 12.0), (0.5, 0.5), ("1e-3", 1e-3), ("−2.5", -2.5), ("12,345", 12345.0)],
)  # fmt: skip
def test_what_a_cell_is_sorted_by(value: str | float | None, key: float | None) -> None:
    found = sort_key(value)
    assert found is None if key is None else float(found or "nan") == pytest.approx(key)


def test_a_table_says_all_it_was_given() -> None:
    table = Table(
        "t",
        (TableColumn("name"), TableColumn("n", True)),
        (("a", 1), ("b", None), ("c", 2.5)),
        (),
        (2,),
    )
    parsed = Parsed(render(Page("p", "", (table,))))
    rows = [attributes for attributes in parsed.all("tr") if attributes.get("class") == "marked"]
    assert len(rows) == 1 and [one["scope"] for one in parsed.all("th")] == [
        "col",
        "col",
        "row",
        "row",
        "row",
    ]
    assert [one.get("data-sort") for one in parsed.all("td")] == ["1.0", None, "2.5"]


def test_a_veil_is_clear_where_the_map_is_one() -> None:
    values = ((0.0, 0.25, 1.0), (0.5, math.nan, 0.75))
    pixels = np.asarray(opened(veil_of(values)))
    assert pixels.shape == (2, 3, 4)
    expected = [[round(255 * (1 - (0 if math.isnan(v) else v))) for v in row] for row in values]
    assert np.abs(pixels[..., 3].astype(int) - expected).max() <= 1
    assert (
        len({tuple(colour) for colour in pixels[..., :3].reshape(-1, 3).tolist()}) == 1
    )  # dark, whatever the alpha


def test_maps_of_any_scale() -> None:
    a = np.array([[-3.0, 0.0], [1.0, 2.0]])
    assert map_values(a) == (
        (0.0, 0.0),
        (pytest.approx(0.5, abs=0.02), 1.0),
    )  # below zero it speaks against the class
    assert map_values(np.array([[5.0, 6.0], [7.0, 9.0]]))[0][0] == 0.0
    assert map_values(np.zeros((3, 3))) == () and map_values(np.full((2, 2), np.nan)) == ()
    spike = np.full((20, 20), 0.1)
    spike[0, 0], spike[0, 1] = 100.0, 0.0
    assert 0 < map_values(spike)[5][5] < map_values(spike)[0][0] == 1.0


def test_a_large_map_is_the_mean_of_its_cells() -> None:
    a = np.random.default_rng(0).random((56, 84)).astype(np.float32)
    found = np.array(shrink_map(a))
    assert found.shape == (28, 28)
    slow = [[a[2 * i : 2 * i + 2, 3 * j : 3 * j + 3].mean() for j in range(28)] for i in range(28)]
    np.testing.assert_allclose(found, slow, atol=1e-3)


@pytest.mark.parametrize(("y", "x", "words"), [(0.1, 0.1, "top left"), (0.5, 0.5, "centre"),
                                              (0.5, 0.9, "right"), (0.9, 0.5, "bottom centre")])  # fmt: skip
def test_where_a_map_is_brightest(y: float, x: float, words: str) -> None:
    places = {"top", "bottom", "left", "right", "centre"}
    assert places & set(brightest(hill(9, 9, y, x)).split()) == set(words.split())
    assert places & set(brightest(((1.0,),)).split()) == {"centre"}


def test_boxes_lie_where_they_lie() -> None:
    case = PhotoWithBoxes(
        picture_of(photo()), ((0.25, 0.5, 0.75, 1.0),), ((-0.5, 0.0, 0.5, 2.0),), "dog", 0.25
    )
    parsed = Parsed(render(Page("p", "", (Boxes("b", (case,)),))))
    drawn = {
        kind: [r for r in parsed.all("rect") if r["class"] == kind][-1]
        for kind in ("truth", "found")
    }
    assert [drawn["truth"][k] for k in ("x", "y", "width", "height")] == ["25", "50", "50", "50"]
    assert [drawn["found"][k] for k in ("x", "y", "width", "height")] == [
        "0",
        "0",
        "50",
        "100",
    ]  # no further than it
    assert "IoU 0.25" in parsed.text("script", "style")


def test_bars_are_as_long_as_their_values() -> None:
    bars = Bars("b", "%", (Bar("a", 50.0), Bar("c", 25.0)), (), Bar("clean:", 80.0))
    styles = Parsed(render(Page("p", "", (bars,)))).values("style")
    assert "width:50.0%" in styles and "width:25.0%" in styles and styles.count("left:80.0%") == 2
    other = Parsed(
        render(Page("p", "", (Bars("b", "ms", (Bar("a", 4.0), Bar("c", 1.0))),)))
    ).values("style")
    assert (
        "width:100.0%" in other and "width:25.0%" in other
    )  # without a natural end the largest is all


def test_pictures_are_small_jpegs() -> None:
    assert opened(picture_of(Image.new("RGBA", (640, 160)), 320)).size == (320, 80)
    assert opened(picture_of(Image.new("L", (20, 10)))).size == (20, 10)
    assert opened(picture_of(Image.new("RGB", (5000, 1)), 100)).size == (100, 1)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: str, b: str) -> float:
    """WCAG 2.2, 1.4.3."""
    low, high = sorted((_luminance(a), _luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_ink_is_readable_in_both_themes(theme: int) -> None:
    style = (Path(cenote.report.__file__).parent / "templates" / "colours.css").read_text()
    colours = {
        m[1]: m[2 + theme] for m in re.finditer(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", style)
    }
    assert {
        "paper",
        "surface",
        "ink",
        "soft",
        "accent",
        "glow",
        "right",
        "wrong",
        "g0",
        "g7",
    } <= set(colours)
    for ink in ("ink", "soft", "accent", "right", "wrong", *(f"g{i}" for i in range(8))):
        for ground in ("paper", "surface", "glow"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
