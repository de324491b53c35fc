"""The eight variants of ImageNet-9: which pixels are kept, which are black, and where the others come from."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.data import BadImage, Dataset, Record, open_dataset, pack
from cenote.data.backgrounds import VARIANTS, tiled_box, with_background, write_variants


def make(folder: Path, images: int = 12, size: tuple[int, int] = (24, 16)) -> Dataset:
    """Image i: background of value i + 1, a disc-like object of value 100 + i with one uncertain pixel beside it."""
    records = []
    for i in range(images):
        pixels, mask = np.full((*size[::-1], 3), i + 1, np.uint8), np.zeros(size[::-1], np.uint8)
        pixels[4:9, 6:12], mask[4:9, 6:12] = 100 + i, 1
        pixels[4, 6], mask[4, 6] = i + 1, 0
        mask[9, 7] = 3
        Image.fromarray(pixels).save(folder / f"{i}.png")
        Image.fromarray(np.array([2, 1, 0, 3], np.uint8)[mask]).save(folder / f"{i}-mask.png")
        records.append(Record(f"{i}.png", ("a", "b", "c/d")[i % 3], masks=(f"{i}-mask.png",)))
    return pack(
        [*records, Record("0.png", "a"), Record("0.png", masks=("0-mask.png",))], folder, "made"
    )


def pixels_of(dataset: Dataset, variant: str, i: int, seed: int = 0) -> np.ndarray:
    return np.asarray(with_background(dataset, variant, seed).image(i))


def test_which_pixels_stay(tmp_path: Path) -> None:
    dataset = make(tmp_path)
    image, mask = np.asarray(dataset.image(5)), dataset.mask(5)
    assert mask is not None
    inside, box = (mask == 1)[..., None], np.zeros((16, 24, 1), bool)
    box[4:10, 6:12] = True  # down to the uncertain pixel
    expected = {
        "original": image,
        "only_fg": np.where(inside, image, 0),
        "no_fg": np.where((mask != 0)[..., None], 0, image),
        "only_bg_b": np.where(box, 0, image),
        "only_bg_t": np.full_like(image, 6),
    }
    for variant, wanted in expected.items():
        assert np.array_equal(pixels_of(dataset, variant, 5), wanted), variant
    for variant in ("mixed_same", "mixed_rand", "mixed_next"):
        result = pixels_of(dataset, variant, 5)
        assert np.array_equal(result[inside[..., 0]], image[inside[..., 0]])
        assert len(np.unique(result[~inside[..., 0]])) == 1  # all of one other image's background


def test_backgrounds_come_from_the_right_class(tmp_path: Path) -> None:
    dataset = make(tmp_path)
    donors = {
        variant: [
            [int(pixels_of(dataset, variant, i, seed)[0, 0, 0]) - 1 for i in range(12)]
            for seed in range(8)
        ]
        for variant in ("mixed_same", "mixed_rand", "mixed_next")
    }
    for seed in range(8):
        assert all(d % 3 == i % 3 and d != i for i, d in enumerate(donors["mixed_same"][seed]))
        assert all(d % 3 == (i + 1) % 3 for i, d in enumerate(donors["mixed_next"][seed]))
    shifts = np.array([[(d - i) % 3 for i, d in enumerate(row)] for row in donors["mixed_rand"]])
    assert np.bincount(shifts.ravel()).min() > 20  # of 96; every class is as likely
    assert donors["mixed_rand"][0] != donors["mixed_rand"][1]
    assert (
        pixels_of(dataset, "mixed_rand", 3, 1)[0, 0, 0] == donors["mixed_rand"][1][3] + 1
    )  # and again the same


def test_the_tile_is_the_largest_strip_laid_from_the_corner() -> None:
    image = np.arange(10 * 12 * 3, dtype=np.uint8).reshape(10, 12, 3)
    left, top, right, bottom = box = (
        5,
        2,
        8,
        6,
    )  # 5 columns on the left: 50 pixels; 4 rows below: 48
    result = tiled_box(image, box)
    for y in range(10):
        for x in range(12):
            inside = left <= x < right and top <= y < bottom
            assert np.array_equal(result[y, x], image[y, x % 5] if inside else image[y, x])
    below = tiled_box(image, (4, 2, 8, 6))  # 4 x 10 is less than 4 x 12: the rows below
    assert np.array_equal(below[2:6, 4:8], image[6:10][np.arange(2, 6) % 4][:, 4:8])
    with pytest.raises(ValueError):
        tiled_box(image, (0, 0, 12, 10))


def test_sizes_may_differ(tmp_path: Path) -> None:
    dataset = make(tmp_path, 3)
    Image.new("RGB", (50, 20), (7, 7, 7)).save(tmp_path / "big.png")
    values = np.full((20, 50), 2, np.uint8)
    values[3:5, 3:5] = 1
    Image.fromarray(values).save(tmp_path / "big-mask.png")
    both = pack([dataset[0], Record("big.png", "z", masks=("big-mask.png",))], tmp_path, "two")
    mixed = pixels_of(both, "mixed_next", 0)
    assert (
        mixed.shape == (16, 24, 3)
        and mixed[0, 0].tolist() == [7, 7, 7]
        and mixed[5, 8].tolist() == [100] * 3
    )


def test_variants_are_written_and_read_back(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    dataset = make(tmp_path / "in", 12)
    Image.fromarray(np.zeros((16, 24), np.uint8)).save(tmp_path / "in" / "1-mask.png")
    left_out = write_variants(dataset, tmp_path / "out", 3)
    assert any(s.startswith("no_fg: ") and "1.png" in s for s in left_out)
    for variant in VARIANTS:
        read = open_dataset(tmp_path / "out" / variant)
        assert read.classes == ["a", "b", "c/d"] and len(read) >= 8
        for i, record in enumerate(read):
            number = int(Path(record.image).stem)
            assert record.label == ("a", "b", "c/d")[number % 3]
            assert np.array_equal(np.asarray(read.image(i)), pixels_of(dataset, variant, number, 3))


def test_what_cannot_be_done_is_refused(tmp_path: Path) -> None:
    dataset = make(tmp_path)
    assert (
        len(with_background(dataset, "mixed_next")) == 12
    )  # without the two that lack mask or class
    with pytest.raises(ValueError, match=r"'mixed'.*original"):
        with_background(dataset, "mixed")
    with pytest.raises(ValueError, match=r"\bmade\b"):
        with_background(dataset.select([12, 13]), "no_fg")
    Image.fromarray(np.zeros((16, 24), np.uint8)).save(tmp_path / "1-mask.png")
    for variant in VARIANTS[1:]:
        with pytest.raises(BadImage, match=r"1\.png"):
            with_background(dataset, variant).image(1)
