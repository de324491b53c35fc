"""`sample/N:DATA`: a reproducible sample of the images of any data."""

from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from cenote.data import LayoutError, open_dataset


def test_a_sample_has_its_share_of_every_class_and_split(tmp_path: Path) -> None:
    for split, label, count in (("train", "a", 40), ("train", "b", 20), ("test", "a", 20)):
        folder = tmp_path / split / label
        folder.mkdir(parents=True)
        for i in range(count):
            Image.new("L", (2, 2)).save(folder / f"{i}.png")
    sample = open_dataset(f"sample/20:{tmp_path}")
    assert Counter((record.split, record.label) for record in sample) == {
        ("train", "a"): 10,
        ("train", "b"): 5,
        ("test", "a"): 5,
    }
    images = {record.image for record in sample}
    assert images < {record.image for record in open_dataset(f"sample/40:{tmp_path}")}
    assert [record.image for record in open_dataset(f"sample/20:{tmp_path}")] == [
        record.image for record in sample
    ]
    assert len(open_dataset(f"sample/1000:{tmp_path}")) == 80
    with pytest.raises(LayoutError, match="whole number"):
        open_dataset(f"sample/many:{tmp_path}")
