"""OpenImages30k for localization: 100 classes, masks of the objects and of what does not count."""

from __future__ import annotations

import csv
from pathlib import Path

from ..dataset import Dataset
from .registry import benchmark
from .wsol import read_published

TREE = """\
metadata/OpenImages/train/image_ids.txt
metadata/OpenImages/train/class_labels.txt
metadata/OpenImages/val/image_ids.txt
metadata/OpenImages/val/class_labels.txt
metadata/OpenImages/val/localization.txt
metadata/OpenImages/test/image_ids.txt
metadata/OpenImages/test/class_labels.txt
metadata/OpenImages/test/localization.txt
dataset/OpenImages/train/01226z/*.jpg
dataset/OpenImages/val/01226z/*.jpg, *_m01226z_*.png, *_ignore.png
dataset/OpenImages/test/01226z/*.jpg, *_m01226z_*.png, *_ignore.png"""
# Of Open Images itself. With one of them in the root, classes have words for names.
DESCRIPTIONS = ("class-descriptions-boxable.csv", "oidv7-class-descriptions.csv")


@benchmark(
    "openimages",
    "OpenImages30k (wsolevaluation): 29,819 train, 2,500 val, 5,000 test, masks and ignore regions",
    TREE,
    "GitHub, clovaai/wsolevaluation (dataset/prepare_openimages.sh)",
)
def read_openimages(root: Path) -> Dataset:
    titles = {}
    for name in DESCRIPTIONS:
        if (root / name).is_file():
            with open(root / name, encoding="utf-8", newline="") as file:
                titles = {
                    row[0].removeprefix("/m/"): row[1] for row in csv.reader(file) if len(row) > 1
                }
    return read_published(root, "openimages", "OpenImages", titles)
