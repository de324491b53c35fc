"""A data set that needs no files: two classes of noisy squares."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.data import BadImage, Dataset, Record, pack


class Squares:
    """Image i is class i % 3: noise with a bright square, whose colour is the class."""

    def __init__(self, bad: tuple[int, ...] = ()) -> None:
        self.bad = bad

    def image(self, row: int) -> Image.Image:
        if row in self.bad:
            raise BadImage(f"{row}.png", "damaged")
        draw = np.random.default_rng(row)
        pixels = draw.integers(0, 120, (32, 32, 3), np.uint8)
        x, y = draw.integers(0, 20, 2)
        pixels[y : y + 10, x : x + 10, row % 3] = 255
        return Image.fromarray(pixels)

    def mask(self, row: int) -> None:
        return None


def squares(images: int = 24, bad: tuple[int, ...] = ()) -> Dataset:
    records = [Record(f"{i}.png", "abc"[i % 3], "val" if i % 4 == 3 else "train") for i in range(images)]
    dataset = pack(records, Path("squares"), "squares")
    dataset.pixels = Squares(bad)
    return dataset


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CENOTE_CACHE", str(tmp_path / "cache"))
