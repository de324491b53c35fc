"""Pictures of GSP's prototypes show the histograms and the transport that they are given."""

from pathlib import Path

import numpy as np
from PIL import Image

from cenote.data import Record, pack
from cenote.report.prototypes import (
    COLOURS,
    GREY,
    color_by_prototype,
    draw_histograms,
    prototype_sheet,
)


def test_a_row_has_the_mean_histogram_of_a_class() -> None:
    z, y = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0.5, 0.5]]), np.array([4, 4, 1, 1])
    figure = draw_histograms(z, y, list("abcde"))
    bars = [[bar.get_height() for bar in axes.patches] for axes in figure.axes]  # type: ignore[attr-defined]
    assert np.allclose(bars, [[0, 0.25, 0.75], [0.5, 0.5, 0]])
    assert [axes.get_ylabel() for axes in figure.axes] == ["b", "e"]
    many = draw_histograms(np.full((20, 2), 0.5), np.arange(20), [str(i) for i in range(20)])
    assert len(many.axes) == 12 and "8 more classes" in many.axes[-1].get_xlabel()


def test_cells_have_the_colour_of_the_prototype_that_takes_most(tmp_path: Path) -> None:
    transport = np.zeros((2, 2, 9))
    transport[0, 0, [5, 2]] = 0.2, 0.1
    transport[0, 1, 5] = transport[1, 0, 2] = 0.3  # and one corner gives nothing
    colours = np.zeros((9, 3), np.uint8)
    colours[5], colours[2] = (255, 0, 0), (0, 0, 255)
    picture = np.asarray(color_by_prototype(Image.new("RGB", (64, 64)), transport, colours))
    red, also_red, blue, empty = picture[4, 4], picture[4, 60], picture[60, 4], picture[60, 60]
    assert min(red[0], also_red[0], blue[2]) > 150
    assert max(*red[1:], *also_red[1:], *blue[:2]) == 0
    assert empty.max() < 30  # the photograph shows where nothing is taken
    for name in "ab":
        Image.new("RGB", (64, 64), (200, 40, 90)).save(tmp_path / f"{name}.png")
    dataset = pack([Record(f"{name}.png", "bird") for name in "ab"], tmp_path, "made")
    page = np.asarray(prototype_sheet(dataset, {0: transport, 1: transport[::-1]}))
    legend = {tuple(pixel) for pixel in page[-80:].reshape(-1, 3).tolist()}
    assert {*COLOURS, GREY} <= legend  # seven of nine prototypes have a colour
