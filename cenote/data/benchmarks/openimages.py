"""OpenImages30k for localization: 100 classes, masks of the objects and of pixels to ignore."""

from __future__ import annotations

import csv
from pathlib import Path

from ..dataset import Dataset
from .registry import benchmark
from .wsol import metadata_tree, read_published

# Of Open Images itself. With one of them in the root, the classes have words as names.
DESCRIPTIONS = ("class-descriptions-boxable.csv", "oidv7-class-descriptions.csv")
MASKS = "*_m01226z_*.png, *_ignore.png"


@benchmark(
    "openimages",
    "OpenImages30k (wsolevaluation): 29,819 train, 2,500 val, 5,000 test, masks and ignore regions",
    metadata_tree("OpenImages")
    + f"""
dataset/OpenImages/train/01226z/*.jpg
dataset/OpenImages/val/01226z/*.jpg, {MASKS}
dataset/OpenImages/test/01226z/*.jpg, {MASKS}""",
    "GitHub, clovaai/wsolevaluation (dataset/prepare_openimages.sh)",
)
def read_openimages(root: Path) -> Dataset:
    titles = {}
    for path in (root / name for name in DESCRIPTIONS):
        if path.is_file():
            with open(path, encoding="utf-8", newline="") as file:
                rows = [row for row in csv.reader(file) if len(row) > 1]
            titles = {row[0].removeprefix("/m/"): row[1] for row in rows}
    return read_published(root, "openimages", "OpenImages", titles)
