"""ADE20K as in the scene parsing challenge: 150 classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ..checks import check_layout
from ..dataset import Dataset, pack
from ..folders import walk
from ..record import Record
from .parsing import split_lines
from .registry import benchmark

SPLITS = {"training": "train", "validation": "val"}


@benchmark(
    "ade20k",
    "ADE20K, scene parsing: 20,210 train and 2,000 val; masks contain positions in the 150 classes, "
    "255 for none of them",
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
    folders = [f"{kind}/{folder}/" for kind in ("images", "annotations") for folder in SPLITS]
    check_layout(root, "ADEChallengeData2016", "objectInfo150.txt", *folders)
    classes = _classes(root / "objectInfo150.txt")
    return pack(_records(root), root, "ade20k", classes, mask_codes="classes from 1")


def _classes(path: Path) -> list[str]:
    """Return the first of the synonyms, or all of them where two classes share it."""
    synonyms = [row[-1].strip() for row in split_lines(path, 5, "\t", skip=1)]
    short = [names.split(",")[0].strip() for names in synonyms]
    count = Counter(short)
    pairs = zip(short, synonyms, strict=True)
    return [name if count[name] == 1 else names for name, names in pairs]


def _records(root: Path) -> Iterator[Record]:
    path = root / "sceneCategories.txt"
    scenes = {row[0]: row[1] for row in split_lines(path, 2)} if path.is_file() else {}
    for folder, split in SPLITS.items():
        for image in walk(root, f"images/{folder}/"):
            name = Path(image).stem
            masks = (f"annotations/{folder}/{name}.png",)
            scene = {"scene": scenes[name]} if name in scenes else {}
            yield Record(image, split=split, masks=masks, attributes=scene)
