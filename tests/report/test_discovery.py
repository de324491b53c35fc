"""Pictures of discovery: masks and boxes lie where they were found, pages hold the cases, the table every method."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.data import Dataset, Record, pack
from cenote.evaluate.discover import DiscoveryCase, DiscoveryReport, MethodScore
from cenote.report.discovery import discovery_page, draw_discovered, enlarged


def case(position: int, image: str, overlap: float) -> DiscoveryCase:
    mask = ["0000", "0110", "0110", "0000"]
    boxes, truth = [[50.0, 25.0, 150.0, 75.0]], [[45.0, 20.0, 150.0, 80.0]]
    return DiscoveryCase(position, image, overlap, boxes, truth, [mask])


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    for name in ("a.png", "b.png"):
        Image.new("RGB", (200, 100), (200, 200, 200)).save(tmp_path / name)
    return pack([Record("a.png"), Record("b.png"), Record("gone.png")], tmp_path, "greys")


def report() -> DiscoveryReport:
    best = [case(0, "a.png", 90.0), case(2, "gone.png", 80.0)]
    lost = MethodScore(50.0, [0.0, 100.0], 40.0, best, [case(1, "b.png", 10.0)])
    baseline = MethodScore(50.0, [0.0, 100.0], 40.0, [], [])
    methods = {"lost": lost, "centre": baseline}
    return DiscoveryReport(methods, 2, 2, [], 0.5, "block", None)


def test_what_is_outside_the_mask_goes_dark() -> None:
    mask = np.zeros((4, 4), bool)
    mask[1:3, 1:3] = True
    pixels = np.asarray(
        draw_discovered(Image.new("RGB", (200, 100), (200, 200, 200)), [], [mask])
    ).astype(int)
    assert pixels.shape == (160, 320, 3)
    bright = pixels[..., 0] > 150
    assert np.array_equal(bright, enlarged(mask, (320, 160)))
    assert bright[40:120, 80:240].all() and bright.sum() == 80 * 160


def test_found_boxes_are_amber_and_true_ones_blue() -> None:
    picture = draw_discovered(
        Image.new("RGB", (200, 100)), [[50, 25, 150, 75]], [], [[10, 5, 190, 95]]
    )
    pixels = np.asarray(picture).astype(int)
    amber = (pixels[..., 0] > 200) & (pixels[..., 2] < 60)
    blue = (pixels[..., 2] > 200) & (pixels[..., 0] < 150)
    for colour, (x0, y0, x1, y1) in ((amber, (80, 40, 240, 120)), (blue, (16, 8, 304, 152))):
        ys, xs = np.nonzero(colour)
        assert (
            np.abs(
                np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]) - (x0, y0, x1, y1)
            ).max()
            <= 2
        )


def test_a_page_for_each_method_that_found_something(data: Dataset) -> None:
    ((name, draw),) = report().pictures(data)
    page = draw()
    assert name == "discover_lost.jpg" and page is not None
    assert page.width < 300 < page.height, (
        "one image a group, one group above the other, without the missing image"
    )
    empty = report()
    empty.methods["lost"] = empty.methods["centre"]
    assert discovery_page(empty.to_json(), data, "lost") is None


def test_the_table() -> None:
    first, heads, lost, centre = report().table().splitlines()
    assert all(re.search(rf"\b{value}\b", first) for value in ("2", "block", "0.5"))
    assert "CorLoc" in heads and "IoU" in heads
    numbers = re.findall(r"\d+\.\d", lost)
    assert lost.split()[0] == "LOST" and numbers == re.findall(r"\d+\.\d", centre)
    assert numbers[0] == "50.0"
    without_boxes = replace(report(), methods={}).table()
    assert without_boxes and "50.0" not in without_boxes
