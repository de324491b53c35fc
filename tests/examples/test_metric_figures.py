"""Pictures of metric learning show the figures they are given, and say what they cannot draw."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.data import Box, Dataset, Record, pack
from examples.gsp_tokens import Hulls, draw_hulls, hull
from examples.metric.figures import (
    OTHER_PROTOTYPES,
    PROTOTYPE_COLOURS,
    class_histograms,
    collage_sheet,
    color_by_prototype,
    draw_histograms,
    draw_mu,
    draw_positivity,
    prototype_sheet,
    share_in_box,
)


def test_positivity() -> None:
    x = np.linspace(0, 1, 5)
    axes = draw_positivity(x, x**2, x**3, "here").axes[0]
    lines = {
        str(line.get_label()): line
        for line in axes.lines
        if not str(line.get_label()).startswith("_")
    }
    assert len(lines) == 2 and axes.get_title(loc="left") == "here"
    for power, line in enumerate(lines.values(), 2):
        assert np.allclose(line.get_xdata(), x) and np.allclose(line.get_ydata(), x**power)
    with pytest.raises(ValueError):
        draw_positivity(x, x[:3], x)


def test_effect_of_mu() -> None:
    axes = draw_mu({0.5: [30.0, 34.0], 0.1: [40.0, 40.0], 1.0: 20.0}, gap=[20.0, 22.0]).axes[0]
    line, gap = axes.lines[:2]
    assert list(line.get_xdata()) == [0.1, 0.5, 1.0] and np.allclose(line.get_ydata(), [40, 32, 20])
    assert np.allclose(gap.get_ydata(), 21)
    band = axes.collections[0].get_paths()[0].vertices
    at = np.asarray(band)[np.isclose(np.asarray(band)[:, 0], 0.5), 1]
    assert np.allclose(
        [at.min(), at.max()], [32 - 8**0.5, 32 + 8**0.5]
    )  # one deviation of two seeds
    with pytest.raises(ValueError):
        draw_mu({})
    low, high = draw_mu({0.1: 5.0, 1.0: 5.01}).axes[0].get_ylim()
    assert low < 4.5 and high > 5.5, "a hundredth of a point is no cliff"


def test_histograms_of_classes() -> None:
    z, y = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0.5, 0.5]]), np.array([4, 4, 1, 1])
    present, shares = class_histograms(z, y)
    assert present.tolist() == [1, 4] and np.allclose(shares, [[0, 0.25, 0.75], [0.5, 0.5, 0]])
    figure = draw_histograms({"without": (z, y), "with": (z[:, ::-1], y)}, list("abcde"))
    bars = [[bar.get_height() for bar in axes.patches] for axes in figure.axes]
    assert np.allclose(bars, [[0, 0.25, 0.75], [0.75, 0.25, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]])
    assert [figure.axes[0].get_ylabel(), figure.axes[2].get_ylabel()] == ["b", "e"]
    many = draw_histograms(
        {"one": (np.full((20, 2), 0.5), np.arange(20))}, [str(i) for i in range(20)]
    )
    assert len(many.axes) == 12 and "8" in many.get_supxlabel()
    with pytest.raises(ValueError):
        class_histograms(z, y[:2])
    with pytest.raises(ValueError):
        draw_histograms({"a": (z[:2], y[:2]), "b": (z[2:], y[2:])}, list("abcde"))


def test_hulls() -> None:
    square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1], [0.5, 0.5], [0.2, 0.7]])
    assert sorted(hull(square).tolist()) == [0, 1, 2, 3]
    line = np.array([[0.0, 0], [3, 3], [1, 1], [2, 2]])
    assert sorted(hull(line).tolist()) == [0, 1]  # its ends
    assert sorted(hull(line[:2]).tolist()) == [0, 1] and set(hull(line[:1]).tolist()) == {0}
    tokens = np.array([[0.0, 0], [2, 2], [5, 5]])
    panel = Hulls(
        "GAP",
        np.concatenate([square, line + 3]),
        np.repeat([0, 1], [6, 4]),
        tokens,
        np.array([0, 1, -1]),
    )
    figure = draw_hulls([panel, panel._replace(title="GSP")])
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["GAP", "GSP"]
    corners = figure.axes[0].patches[0].get_path().vertices
    assert {tuple(corner) for corner in np.asarray(corners)} == {(0, 0), (1, 0), (1, 1), (0, 1)}
    background = figure.axes[0].lines[-1]
    assert (list(background.get_xdata()), list(background.get_ydata())) == ([5], [5])
    with pytest.raises(ValueError):
        draw_hulls([panel._replace(samples=np.zeros((4, 3)))])


def test_cells_have_the_colour_of_the_prototype_that_takes_most(tmp_path: Path) -> None:
    transport = np.zeros((2, 2, 9))
    transport[0, 0, [5, 2]] = 0.2, 0.1
    transport[0, 1, 5] = transport[1, 0, 2] = 0.3  # and one corner gives nothing
    colours = np.zeros((9, 3), np.uint8)
    colours[5], colours[2] = (255, 0, 0), (0, 0, 255)
    picture = color_by_prototype(Image.new("RGB", (64, 64)), transport, colours)
    red, also, blue, none = (picture.getpixel(at) for at in ((4, 4), (60, 4), (4, 60), (60, 60)))
    assert min(red[0], also[0], blue[2]) > 150 and red[1:] == also[1:] == blue[:2] == (0, 0)
    assert max(none) < 30, "the photograph shows where nothing is taken"
    data = made(tmp_path)
    page = prototype_sheet(data, [0, 1], [transport, transport[::-1]])
    seen = {colour for _, colour in page.getcolors(1 << 20)}
    assert set(PROTOTYPE_COLOURS) <= seen and OTHER_PROTOTYPES in seen, (
        "the legend names those with a colour, and the rest"
    )
    one = prototype_sheet(data, [0], [transport])
    assert OTHER_PROTOTYPES in {colour for _, colour in one.getcolors(1 << 20)}, (
        "a narrow page has room for all names"
    )
    assert PROTOTYPE_COLOURS[0] in {
        page.getpixel((30, y)) for y in range(page.height - 80, page.height)
    }
    for bad in ([], [transport]):
        with pytest.raises(ValueError):
            prototype_sheet(data, [0, 1][: 2 * len(bad)], bad)


def made(folder: Path) -> Dataset:
    records = []
    for i in range(3):
        Image.new("RGB", (64, 64), (200, 40 * i, 90)).save(folder / f"{i}.png")
        records.append(Record(f"{i}.png", "bird", "test", (Box(32, 0, 64, 32),)))
    return pack([*records, Record("0.png", "bird")], folder, "made")


def test_collages(tmp_path: Path) -> None:
    dataset, sharp, flat = made(tmp_path), np.zeros((4, 4)), np.ones((7, 7))
    sharp[0, 3] = 1
    sheet = collage_sheet(dataset, [0, 2], {"GSP": [sharp] * 2, "GAP": [flat] * 2}, side=64)
    pixels = np.asarray(sheet)
    assert (
        pixels.shape[1] > 2 * 3 * 64 and (pixels == (200, 80, 90)).all(-1).any()
    )  # the second collage is there
    with pytest.raises(ValueError, match=r"\b2\b.*\b1\b.*GSP"):
        collage_sheet(dataset, [0, 2], {"GSP": [sharp]})
    with pytest.raises(ValueError):
        collage_sheet(dataset, [3], {"GSP": [sharp]})


def test_how_much_of_a_map_lies_in_a_box() -> None:
    corner, flat = np.zeros((4, 4)), np.ones((7, 7))
    corner[0, 3] = 2
    assert share_in_box(corner, (32, 0, 64, 32), (64, 64)) == pytest.approx(1)
    assert share_in_box(corner, (0, 0, 32, 32), (64, 64)) == 0
    assert share_in_box(flat, (32, 0, 64, 32), (64, 64)) == pytest.approx(
        0.25
    )  # through the middle of cells
    assert share_in_box(flat, (0, 0, 64, 32), (64, 64)) == pytest.approx(0.5)
    assert share_in_box(np.zeros((2, 2)), (0, 0, 8, 8), (64, 64)) == 0
