"""COCO 2017, and the 20k images of COCO 2014 on which object discovery is measured."""

from __future__ import annotations

import re
from pathlib import Path

from ..checks import check_layout
from ..coco import CocoFile, read_coco_files
from ..dataset import Dataset
from .parsing import parse_lines
from .registry import benchmark

COCO20K = "coco_20k_filenames.txt"


@benchmark(
    "coco",
    "COCO 2017: train and val, with boxes, masks, crowds and captions",
    """\
annotations/instances_train2017.json
annotations/instances_val2017.json
annotations/captions_train2017.json (optional)
annotations/captions_val2017.json (optional)
train2017/*.jpg
val2017/*.jpg""",
    "cocodataset.org (2017 Train images, 2017 Val images, 2017 Train/Val annotations)",
)
def read_coco_2017(root: Path) -> Dataset:
    files = [_file(root, "COCO 2017", split) for split in ("train2017", "val2017")]
    return read_coco_files(files, "coco")


@benchmark(
    "coco20k",
    "COCO 20k: the 19,817 images of train2014 selected for object discovery",
    "coco_20k_filenames.txt\nannotations/instances_train2014.json\ntrain2014/*.jpg",
    "cocodataset.org (2014 Train images, 2014 Train/Val annotations); the list from GitHub, "
    "valeoai/LOST (datasets/coco_20k_filenames.txt)",
)
def read_coco20k(root: Path) -> Dataset:
    check_layout(root, "COCO 20k", COCO20K)
    file = _file(root, "COCO 20k", "train2014")
    ids = list(parse_lines(root / COCO20K, _image_id, 1))
    return read_coco_files([file._replace(only=ids)], "coco20k")


def _file(root: Path, what: str, split: str) -> CocoFile:
    annotations = f"annotations/instances_{split}.json"
    check_layout(root, what, annotations, f"{split}/|images/{split}/")
    images = next(p for p in (root / split, root / "images" / split) if p.is_dir())
    captions = root / "annotations" / f"captions_{split}.json"
    return CocoFile(root / annotations, images, captions if captions.is_file() else None)


def _image_id(text: str) -> int:
    """Return the id in a name such as train2014/COCO_train2014_000000123456.jpg."""
    number = re.search(r"_(\d+)\.\w+$", text)
    if number is None:
        raise ValueError("expected COCO_train2014_NUMBER.jpg")
    return int(number[1])
