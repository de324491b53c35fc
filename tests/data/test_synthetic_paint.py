"""Polygons become exactly the pixels whose centre is inside, against a slow oracle in fractions."""

from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

from cenote.data.synthetic.paint import SUBPIXELS, Appearance, Pose, paint, scanlines
from cenote.data.synthetic.rng import PortableRng, direction, noise
from cenote.data.synthetic.shapes import ObjectShape, poly

WIDTH, HEIGHT = 23, 17


def inside(corners: list[tuple[int, int]], column: int, row: int) -> bool:
    """Even-odd: does a ray to the left from the pixel's centre cross an odd number of edges?"""
    x, y = Fraction(2 * column + 1, 2) * SUBPIXELS, Fraction(2 * row + 1, 2) * SUBPIXELS
    crossed = 0
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        if min(y0, y1) <= y < max(y0, y1):
            crossed += x0 + (y - y0) * Fraction(x1 - x0, y1 - y0) <= x
    return crossed % 2 == 1


def painted(polygons: list[list[tuple[int, int]]]) -> np.ndarray:
    corners = np.array([corner for polygon in polygons for corner in polygon], np.int64)
    ends = np.cumsum([len(polygon) for polygon in polygons]).tolist()
    image = np.zeros(WIDTH * HEIGHT, int)
    for start, stop, owner in zip(
        *scanlines(corners[:, 0], corners[:, 1], ends, WIDTH, HEIGHT), strict=True
    ):
        image[start:stop] = owner + 1
    return image.reshape(HEIGHT, WIDTH)


@pytest.mark.parametrize("seed", range(12))
def test_any_polygons_over_each_other(seed: int) -> None:
    """Concave, crossing themselves, beyond every border; half of them with corners on pixel centres, the hard case."""
    rng, step = PortableRng(seed), 8 if seed % 2 else 1
    polygons = [
        [
            (rng.integer(-120, 480) // step * step, rng.integer(-100, 380) // step * step)
            for _ in range(rng.integer(3, 9))
        ]
        for _ in range(4)
    ]
    expected = np.zeros((HEIGHT, WIDTH), int)
    for number, polygon in enumerate(polygons, 1):
        for row in range(HEIGHT):
            for column in range(WIDTH):
                if inside(polygon, column, row):
                    expected[row, column] = number
    assert (painted(polygons) == expected).all()


def test_nothing_of_a_polygon_without_area_or_outside() -> None:
    line = [(10, 10), (200, 150), (10, 10)]
    outside = [(-90, -90), (-20, -90), (-20, -20)]
    assert not painted([line, outside]).any()


def test_two_halves_of_a_square_share_no_pixel_and_leave_none_out() -> None:
    upper, lower = [(0, 0), (160, 0), (160, 160)], [(0, 0), (160, 160), (0, 160)]
    square = painted([[(0, 0), (160, 0), (160, 160), (0, 160)]]) > 0
    assert ((painted([upper]) > 0) ^ (painted([lower]) > 0) == square).all()


def test_an_object_lies_where_its_pose_says() -> None:
    block = ObjectShape("block", (poly("main", -100, -50, 100, -50, 100, 50, -100, 50),))
    canvas = Image.new("RGB", (200, 200))
    place, silhouette = paint(
        canvas, block, "plain", Pose(0.5, 0.4, 0.25), Appearance((200, 0, 0), (0, 0, 0)), flat=True
    )
    left, top, right, bottom = silhouette.getbbox() or (0, 0, 0, 0)
    assert (left + place[0], top + place[1], right + place[0], bottom + place[1]) == (
        50,
        55,
        150,
        105,
    )
    assert canvas.getbbox() == (50, 55, 150, 105)
    turned, silhouette = paint(
        canvas,
        block,
        "plain",
        Pose(0.5, 0.4, 0.25, turn=180),
        Appearance((0, 0, 0), (0, 0, 0)),
        True,
    )
    box = silhouette.getbbox() or (0, 0, 0, 0)
    assert (box[0] + turned[0], box[1] + turned[1], box[2] - box[0], box[3] - box[1]) == (
        75,
        30,
        50,
        100,
    )


def test_tables_of_chance() -> None:
    assert direction(0) == (1, 0) and direction(180) == (0, 1) and direction(720) == direction(0)
    smooth, grain = noise(64, 16, 0), noise(64, 1, 0)
    assert smooth.shape == (64, 64) and smooth.min() >= -128 and smooth.max() <= 127
    assert (
        np.abs(np.diff(smooth.astype(int))).max()
        <= 256 // 16
        < np.abs(np.diff(grain.astype(int))).max()
    )
    draws = [PortableRng("weights", k).weighted_index((1, 0, 3)) for k in range(4000)]
    assert 1 not in draws and np.mean(np.array(draws) == 2) == pytest.approx(0.75, abs=0.03)
    assert sorted(PortableRng(3).shuffled(range(9))) == list(range(9))
