"""CUB-200-2011: 11,788 birds of 200 classes, with boxes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path

from ..checks import check, check_layout
from ..dataset import Dataset, pack
from ..record import Box, Record
from .parsing import make_box, parse_lines
from .registry import benchmark

TREE = """\
images.txt
image_class_labels.txt
classes.txt
train_test_split.txt
bounding_boxes.txt
images/001.Black_footed_Albatross/*.jpg"""
V2_TREE = """
CUBV2/001.Black_footed_Albatross/*.jpg (optional, here or beside the folder: validation images)
CUBV2/localization.txt or metadata/CUB/val/localization.txt (their boxes)"""
SOURCE = "CaltechDATA, CUB-200-2011 (CUB_200_2011.tgz)"
NEEDS = (*TREE.splitlines()[:-1], "images/")
FLAGS = {"0": False, "1": True}


@benchmark("cub", "CUB-200-2011, classification: the official split", TREE, SOURCE, NEEDS)
@benchmark(
    "cub-retrieval",
    "CUB-200-2011, retrieval: the first 100 classes train, the others test",
    TREE,
    SOURCE,
    NEEDS,
    train_classes=100,
)
@benchmark(
    "cub-localization",
    "CUB-200-2011, localization: the official split, and CUBV2's 1,000 images to select thresholds",
    TREE + V2_TREE,
    f"{SOURCE}; CUBV2: github.com/clovaai/wsolevaluation",
    NEEDS,
    v2=True,
)
def read_cub(root: Path, train_classes: int | None = None, v2: bool = False) -> Dataset:
    """Read the official split, or the first `train_classes` as train; `v2` adds CUBV2 as val."""
    rows = parse_lines(root / "classes.txt", lambda number, name: (str(int(number)), name), 2)
    classes = dict(rows)  # by number, in the order of the file
    records = _records(root, classes, train_classes)
    if v2:
        records = chain(records, _validation(root, set(classes.values())))
    return pack(records, root, "CUB", list(classes.values()))


def _records(root: Path, classes: dict[str, str], train_classes: int | None) -> Iterator[Record]:
    """Yield the records; the four tables list the same images in the same order."""
    paths = parse_lines(root / "images.txt", lambda image, path: (image, f"images/{path}"), 2)
    labels = parse_lines(
        root / "image_class_labels.txt", lambda image, k: (image, int(k), classes[k]), 2
    )
    trains = parse_lines(root / "train_test_split.txt", lambda image, x: (image, FLAGS[x]), 2)
    boxes = parse_lines(root / "bounding_boxes.txt", lambda image, *box: (image, _box(*box)), 5)
    for i, rows in enumerate(zip_longest(paths, labels, trains, boxes), 1):
        path, label, train, box = rows
        check(
            None not in rows and path[0] == label[0] == train[0] == box[0],
            f"{root}: the tables do not list the same images in the same order, see image {i}",
        )
        is_train = train[1]
        if train_classes is not None:
            is_train = label[1] <= train_classes
        yield Record(path[1], label[2], "train" if is_train else "test", (box[1],))


def _box(x: str, y: str, w: str, h: str) -> Box:
    return make_box(float(x), float(y), float(x) + float(w), float(y) + float(h))


def _validation(root: Path, classes: set[str]) -> Iterator[Record]:
    """Yield the images that Choe et al. (2020) collected; the class is the folder."""
    folder = next((name for name in ("CUBV2", "../CUBV2") if (root / name).is_dir()), None)
    if folder is None:
        return
    lists = (folder, "metadata/CUB/val", "../metadata/CUB/val")
    tables = [f"{name}/localization.txt" for name in lists]
    check_layout(root, "CUB-200-2011 with the boxes of CUBV2", "|".join(tables))
    table = next(root / name for name in tables if (root / name).is_file())

    def record(path: str, x1: str, y1: str, x2: str, y2: str) -> Record:
        label = path.partition("/")[0]
        check(label in classes, f"{label} is not a class of CUB")
        return Record(f"{folder}/{path}", label, "val", (make_box(x1, y1, x2, y2),))

    yield from parse_lines(table, record, 5, ",")
