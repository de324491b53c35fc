"""CUB-200-2011: 11,788 birds of 200 classes, with boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, zip_longest
from pathlib import Path

from ..dataset import Dataset, pack
from ..layout import LayoutError, check_layout, list_contents
from ..record import Box, Record
from .parsing import corners, parse_lines
from .registry import benchmark

TREE = """\
images.txt
image_class_labels.txt
classes.txt
train_test_split.txt
bounding_boxes.txt
images/001.Black_footed_Albatross/*.jpg"""
V2_TREE = """
CUBV2/001.Black_footed_Albatross/*.jpg (if there, here or beside the folder: the validation images)
CUBV2/localization.txt or metadata/CUB/val/localization.txt (their boxes)"""
SOURCE = "CaltechDATA, CUB-200-2011 (CUB_200_2011.tgz)"
SplitOf = Callable[
    [int, bool], str
]  # of the class's number and of whether the official split trains on the image


@benchmark("cub", "CUB-200-2011, classification: the official split", TREE, SOURCE)
def read_cub(root: Path) -> Dataset:
    classes = _classes(root)
    return pack(_records(root, classes, _official), root, "cub", list(classes.values()))


@benchmark(
    "cub-retrieval",
    "CUB-200-2011, retrieval: the first 100 classes train, the others test",
    TREE,
    SOURCE,
)
def read_cub_retrieval(root: Path) -> Dataset:
    classes = _classes(root)
    records = _records(
        root, classes, lambda number, is_training: "train" if number <= 100 else "test"
    )
    return pack(records, root, "cub-retrieval", list(classes.values()))


@benchmark(
    "cub-localization",
    "CUB-200-2011, localization: the official split, and CUBV2's 1,000 images to choose thresholds on",
    TREE + V2_TREE,
    f"{SOURCE}; CUBV2: github.com/clovaai/wsolevaluation",
)
def read_cub_localization(root: Path) -> Dataset:
    classes = _classes(root)
    records = chain(_records(root, classes, _official), _validation(root, set(classes.values())))
    return pack(records, root, "cub-localization", list(classes.values()))


def _official(number: int, is_training: bool) -> str:
    return "train" if is_training else "test"


def _classes(root: Path) -> dict[str, str]:
    """Names by number, in the order of the file."""
    check_layout(root, "CUB-200-2011", *TREE.splitlines()[:-1], "images/")
    return dict(parse_lines(root / "classes.txt", lambda number, name: (str(int(number)), name), 2))


def _records(root: Path, classes: dict[str, str], split_of: SplitOf) -> Iterator[Record]:
    """The four tables list the same images in the same order."""
    images = parse_lines(root / "images.txt", lambda image, path: (image, f"images/{path}"), 2)
    labels = parse_lines(
        root / "image_class_labels.txt",
        lambda image, number: (image, int(number), classes[number]),
        2,
    )
    trains = parse_lines(root / "train_test_split.txt", lambda image, flag: (image, _flag(flag)), 2)
    boxes = parse_lines(
        root / "bounding_boxes.txt", lambda image, x, y, w, h: (image, _box(x, y, w, h)), 5
    )
    for place, row in enumerate(zip_longest(images, labels, trains, boxes), 1):
        image, label, train, box = row
        if not (image and label and train and box and image[0] == label[0] == train[0] == box[0]):
            raise ValueError(
                f"{root}: the tables of CUB do not list the same images in the same order, see image {place}"
            )
        yield Record(image[1], label[2], split_of(label[1], train[1]), (box[1],))


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("0 or 1 expected")
    return text == "1"


def _box(x: str, y: str, w: str, h: str) -> Box:
    return corners(float(x), float(y), float(x) + float(w), float(y) + float(h))


def _validation(root: Path, classes: set[str]) -> Iterator[Record]:
    """The images that Choe et al. (2020) collected; the class is the folder."""
    folder = next((place for place in ("CUBV2", "../CUBV2") if (root / place).is_dir()), None)
    if folder is None:
        return
    places = [folder, "metadata/CUB/val", "../metadata/CUB/val"]
    table = next(
        (path for place in places if (path := root / place / "localization.txt").is_file()), None
    )
    if table is None:
        wanted = "localization.txt in it, or metadata/CUB/val/localization.txt beside it"
        raise LayoutError(
            f"{root / folder} has no boxes: expected {wanted}, found {list_contents(root / folder)}"
        )

    def record(path: str, x1: str, y1: str, x2: str, y2: str) -> Record:
        label = path.partition("/")[0]
        if label not in classes:
            raise ValueError(f"{label} is no class of CUB")
        return Record(f"{folder}/{path}", label, "val", (corners(x1, y1, x2, y2),))

    yield from parse_lines(table, record, 5, ",")
