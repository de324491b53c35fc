"""Stanford Cars (Cars196), in two folders with the devkit, or all in car_ims/."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..checks import check, check_layout
from ..dataset import Dataset, pack
from ..record import Record
from .parsing import make_box, read_mat, struct_rows
from .registry import benchmark

TREE = """\
car_ims/000001.jpg
cars_annos.mat
or cars_train/00001.jpg, cars_test/00001.jpg
devkit/cars_meta.mat, devkit/cars_train_annos.mat
cars_test_annos_withlabels.mat (or in devkit/)"""
SOURCE = (
    "Stanford Cars (car_ims.tgz and cars_annos.mat; or cars_train.tgz, cars_test.tgz, "
    "car_devkit.tgz)"
)
CORNERS = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
TEST_LABELS = "cars_test_annos_withlabels.mat"
Row = tuple[str, int, bool, tuple[Any, ...]]  # image, class from 1, is it a test image, corners
SplitOf = Callable[[int, bool], str]  # of the class from 1, and whether it is a test image


@benchmark(
    "cars", "Cars196, classification: the official split, 8,144 train and 8,041 test", TREE, SOURCE
)
def read_cars(root: Path) -> Dataset:
    return _read(root, "cars", lambda number, is_test: "test" if is_test else "train")


@benchmark(
    "cars-retrieval",
    "Cars196, retrieval: the first 98 classes train, the others test",
    TREE,
    SOURCE,
)
def read_cars_retrieval(root: Path) -> Dataset:
    return _read(root, "cars-retrieval", lambda number, _: "train" if number <= 98 else "test")


def _read(root: Path, name: str, split_of: SplitOf) -> Dataset:
    check_layout(root, "Cars196", "cars_annos.mat|devkit/cars_meta.mat")
    path = root / "cars_annos.mat"
    if path.is_file():
        check_layout(root, "Cars196", "cars_annos.mat", "car_ims/")
        names, annotations = read_mat(path, "class_names", "annotations")
        rows = _rows(path, annotations, "relative_im_path")
    else:
        devkit = ("devkit/cars_meta.mat", "devkit/cars_train_annos.mat")
        test_labels = f"{TEST_LABELS}|devkit/{TEST_LABELS}"
        check_layout(root, "Cars196", "cars_train/", "cars_test/", *devkit, test_labels)
        (names,) = read_mat(root / "devkit" / "cars_meta.mat", "class_names")
        rows = _split_rows(root)
    classes = [str(title) for title in names]
    return pack(_records(root, rows, classes, split_of), root, name, classes)


def _rows(path: Path, annotations: Any, image: str) -> Iterator[Row]:
    for name, number, test, *box in struct_rows(
        path, annotations, image, "class", "test", *CORNERS
    ):
        yield str(name), int(number), bool(test), tuple(box)


def _split_rows(root: Path) -> Iterator[Row]:
    test = root / TEST_LABELS
    if not test.is_file():
        test = root / "devkit" / TEST_LABELS
    train = root / "devkit" / "cars_train_annos.mat"
    for path, folder, is_test in ((train, "cars_train", False), (test, "cars_test", True)):
        (annotations,) = read_mat(path, "annotations")
        for name, number, *box in struct_rows(path, annotations, "fname", "class", *CORNERS):
            yield f"{folder}/{name}", int(number), is_test, tuple(box)


def _records(
    root: Path, rows: Iterator[Row], classes: list[str], split_of: SplitOf
) -> Iterator[Record]:
    """Yield the records; MATLAB counts pixels from 1 and includes the last."""
    for image, number, is_test, (x1, y1, x2, y2) in rows:
        check(
            1 <= number <= len(classes),
            f"{root / image}: class {number} is not between 1 and {len(classes)}",
        )
        try:
            box = make_box(max(int(x1) - 1, 0), max(int(y1) - 1, 0), int(x2), int(y2))
        except ValueError as error:
            raise ValueError(f"{root / image}: {error}") from error
        yield Record(image, classes[number - 1], split_of(number, is_test), (box,))
