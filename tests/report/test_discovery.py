"""Pictures of discovery: masks and boxes lie where they were found, pages hold the cases, the table every method."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.data import Dataset, Record, pack
from cenote.report.discovery import discovery_page, draw_found, enlarged, table, write_pages


def case(position: int, image: str, overlap: float) -> dict[str, object]:
    mask = ["0000", "0110", "0110", "0000"]
    truth = [[45, 20, 150, 80]]
    return {"position": position, "image": image, "overlap": overlap, "boxes": [[50, 25, 150, 75]], "truth": truth,
            "masks": [mask]}  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    for name in ("a.png", "b.png"):
        Image.new("RGB", (200, 100), (200, 200, 200)).save(tmp_path / name)
    return pack([Record("a.png"), Record("b.png"), Record("gone.png")], tmp_path, "greys")


def report() -> dict[str, object]:
    score = {"corloc": 50.0, "interval": [0.0, 100.0], "mean_overlap": 40.0}
    cases = {
        "best": [case(0, "a.png", 90.0), case(2, "gone.png", 80.0)],
        "worst": [case(1, "b.png", 10.0)],
    }
    return {
        "methods": {"lost": {**score, **cases}, "centre": {**score, "best": [], "worst": []}},
        "images": 2, "delta": 0.5, "keys": "block", "attention": None,
    }  # fmt: skip


def test_what_is_outside_the_mask_goes_dark() -> None:
    mask = np.zeros((4, 4), bool)
    mask[1:3, 1:3] = True
    pixels = np.asarray(
        draw_found(Image.new("RGB", (200, 100), (200, 200, 200)), [], [mask], side=400)
    ).astype(int)
    assert pixels.shape == (200, 400, 3)
    bright = pixels[..., 0] > 150
    assert np.array_equal(bright, enlarged(mask, (400, 200)))
    assert bright[50:150, 100:300].all() and bright.sum() == 100 * 200


def test_found_boxes_are_amber_and_true_ones_blue() -> None:
    picture = draw_found(
        Image.new("RGB", (200, 100)), [[50, 25, 150, 75]], [], [[10, 5, 190, 95]], side=400
    )
    pixels = np.asarray(picture).astype(int)
    amber = (pixels[..., 0] > 200) & (pixels[..., 2] < 60)
    blue = (pixels[..., 2] > 200) & (pixels[..., 0] < 150)
    for colour, (x0, y0, x1, y1) in ((amber, (100, 50, 300, 150)), (blue, (20, 10, 380, 190))):
        ys, xs = np.nonzero(colour)
        assert (
            np.abs(
                np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]) - (x0, y0, x1, y1)
            ).max()
            <= 2
        )


def test_a_page_for_each_method_that_found_something(data: Dataset, tmp_path: Path) -> None:
    assert write_pages(report(), data, tmp_path / "out") == ["discover_lost.jpg"]
    page = Image.open(tmp_path / "out" / "discover_lost.jpg")
    assert page.width < 300 < page.height, (
        "one image a group, one group above the other; the image that is gone left out"
    )
    empty = report()
    empty["methods"]["lost"] |= {"best": [], "worst": []}  # type: ignore[index]
    assert discovery_page(empty, data, "lost") is None


def test_the_table() -> None:
    first, heads, lost, centre = table(report()).splitlines()
    assert all(re.search(rf"\b{value}\b", first) for value in ("2", "block", "0.5"))
    assert "CorLoc" in heads and "IoU" in heads
    assert lost.split()[0] == "LOST" and re.findall(r"\d+\.\d", lost) == re.findall(
        r"\d+\.\d", centre
    )
    assert re.findall(r"\d+\.\d", lost)[0] == "50.0"
    assert table({**report(), "methods": {}}) and "50.0" not in table({**report(), "methods": {}})
