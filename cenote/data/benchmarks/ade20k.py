"""ADE20K as the scene parsing challenge gives it: 150 classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ..dataset import Dataset, pack
from ..folders import walk
from ..layout import check_layout
from ..record import Record
from .parsing import split_lines
from .registry import benchmark

FOLDERS = {"training": "train", "validation": "val"}


@benchmark(
    "ade20k",
    "ADE20K, scene parsing: 20,210 train and 2,000 val; masks hold positions in the 150 classes, 255 for none of them",
    """\
objectInfo150.txt
sceneCategories.txt (optional)
images/training/*.jpg
images/validation/*.jpg
annotations/training/*.png
annotations/validation/*.png""",
    "MIT CSAIL, ADEChallengeData2016.zip",
)
def read_ade20k(root: Path) -> Dataset:
    nested = root / "ADEChallengeData2016"
    root = nested if nested.is_dir() else root
    folders = [f"{kind}/{folder}/" for kind in ("images", "annotations") for folder in FOLDERS]
    check_layout(root, "ADEChallengeData2016", "objectInfo150.txt", *folders)
    classes = _classes(root / "objectInfo150.txt")
    return pack(_records(root), root, "ade20k", classes, mask_codes="classes from 1")


def _classes(path: Path) -> list[str]:
    """The first of the synonyms, or all of them where two classes share it."""
    names = [row[-1].strip() for row in split_lines(path, 5, "\t", skip=1)]
    short = [name.split(",")[0].strip() for name in names]
    times = Counter(short)
    return [first if times[first] == 1 else name for first, name in zip(short, names, strict=True)]


def _records(root: Path) -> Iterator[Record]:
    path = root / "sceneCategories.txt"
    scenes = {row[0]: row[1] for row in split_lines(path, 2)} if path.is_file() else {}
    for folder, split in FOLDERS.items():
        for image in walk(root, f"images/{folder}/"):
            name = Path(image).stem
            scene = {"scene": scenes[name]} if name in scenes else {}
            yield Record(
                image, split=split, masks=(f"annotations/{folder}/{name}.png",), attributes=scene
            )
