"""COCO 2017, and the 20k images of COCO 2014 on which object discovery is measured."""

from __future__ import annotations

import re
from pathlib import Path

from ..coco import CocoFile, read_coco_files
from ..dataset import Dataset
from ..layout import check_layout
from .registry import benchmark


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
    files = {split: f"annotations/instances_{split}.json" for split in ("train2017", "val2017")}
    folders = [f"{split}/|images/{split}/" for split in files]
    check_layout(root, "COCO 2017", *files.values(), *folders)
    return read_coco_files(
        [_part(root, split, root / path) for split, path in files.items()], "coco"
    )


@benchmark(
    "coco20k",
    "COCO 20k: the 19,817 images of train2014 chosen for object discovery",
    """\
coco_20k_filenames.txt
annotations/instances_train2014.json
train2014/*.jpg""",
    "cocodataset.org (2014 Train images, 2014 Train/Val annotations); the list from GitHub, valeoai/LOST "
    "(datasets/coco_20k_filenames.txt)",
)
def read_coco20k(root: Path) -> Dataset:
    check_layout(
        root,
        "COCO 20k",
        "coco_20k_filenames.txt",
        "annotations/instances_train2014.json",
        "train2014/|images/train2014/",
    )
    only = _ids(root / "coco_20k_filenames.txt")
    part = _part(root, "train2014", root / "annotations" / "instances_train2014.json")
    return read_coco_files([part._replace(only=only)], "coco20k")


def _part(root: Path, split: str, path: Path) -> CocoFile:
    images = next(p for p in (root / split, root / "images" / split) if p.is_dir())
    captions = path.with_name(f"captions_{split}.json")
    return CocoFile(path, images, captions if captions.is_file() else None)


def _ids(path: Path) -> list[int]:
    """Of names such as train2014/COCO_train2014_000000123456.jpg."""
    ids = []
    for line, text in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if not text.strip():
            continue
        number = re.search(r"_(\d+)\.\w+$", text.strip())
        if number is None:
            raise ValueError(
                f"{path}, line {line}: expected COCO_train2014_NUMBER.jpg, found {text.strip()[:80]!r}"
            )
        ids.append(int(number[1]))
    return ids
