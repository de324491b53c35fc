"""Masks of every convention become one: 0, 1 (or classes), and 255 for what does not count."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.data import BadImage
from cenote.data.images import read_mask


def save(path: Path, values: list[list[int]], mode: str = "L") -> Path:
    image = Image.fromarray(np.array(values, np.uint8))
    if mode == "P":
        image.putpalette([255 - k // 3 for k in range(768)])
    (image if mode in "LP" else image.convert(mode)).save(path)
    return path


@pytest.mark.parametrize("mode", ["L", "P", "RGB"])
def test_anything_but_zero_is_object(tmp_path: Path, mode: str) -> None:
    path = save(tmp_path / "m.png", [[0, 255], [1, 128]], mode)
    assert read_mask([path]).tolist() == [[0, 1], [1, 1]]


def test_one_bit(tmp_path: Path) -> None:
    Image.fromarray(np.array([[False, True]])).save(tmp_path / "m.png")
    assert read_mask([tmp_path / "m.png"]).tolist() == [[0, 1]]


def test_trimaps(tmp_path: Path) -> None:
    path = save(tmp_path / "m.png", [[1, 2, 3]])
    assert read_mask([path]).tolist() == read_mask([path], codes="trimap").tolist() == [[1, 0, 255]]


def test_classes(tmp_path: Path) -> None:
    path = save(tmp_path / "m.png", [[0, 1, 150, 255]], "P")
    assert read_mask([path], codes="classes").tolist() == [[0, 1, 150, 255]]
    assert read_mask([path], codes="classes from 1").tolist() == [[255, 0, 149, 254]]


def test_union_and_ignored(tmp_path: Path) -> None:
    paths = [
        save(tmp_path / f"{n}.png", [row])
        for n, row in enumerate([[9, 0, 0, 0], [0, 9, 0, 0], [9, 0, 9, 0]])
    ]
    assert read_mask(paths[:2], paths[2]).tolist() == [
        [1, 1, 255, 0]
    ]  # an object counts also where it is ignored
    assert read_mask([], paths[2]).tolist() == [[255, 0, 255, 0]]


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    small, large = save(tmp_path / "s.png", [[1]]), save(tmp_path / "l.png", [[1, 0]])
    with pytest.raises(BadImage, match=r"l\.png.*\b2 x 1\b.*\b1 x 1\b"):
        read_mask([small, large])
    with pytest.raises(BadImage, match=r"l\.png.*\b2 x 1\b.*\b1 x 1\b"):
        read_mask([small], large)
