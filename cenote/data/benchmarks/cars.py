"""Stanford Cars (Cars196), as split into two folders with the devkit, or all in car_ims/."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..dataset import Dataset, pack
from ..layout import check_layout
from ..record import Record
from .parsing import corners, fields, read_mat
from .registry import benchmark

TREE = """\
car_ims/000001.jpg
cars_annos.mat
or cars_train/00001.jpg, cars_test/00001.jpg
devkit/cars_meta.mat, devkit/cars_train_annos.mat
cars_test_annos_withlabels.mat (or in devkit/)"""
SOURCE = "Stanford Cars (car_ims.tgz and cars_annos.mat; or cars_train.tgz, cars_test.tgz, car_devkit.tgz)"
CORNERS = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
Row = tuple[
    str, int, bool, tuple[Any, ...]
]  # image, class from 1, whether it is for testing, corners
SplitOf = Callable[[int, bool], str]


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
    return _read(
        root, "cars-retrieval", lambda number, is_test: "train" if number <= 98 else "test"
    )


def _read(root: Path, name: str, split_of: SplitOf) -> Dataset:
    check_layout(root, "Cars196", "cars_annos.mat|devkit/cars_meta.mat")
    if (root / "cars_annos.mat").is_file():
        check_layout(root, "Cars196", "cars_annos.mat", "car_ims/")
        path = root / "cars_annos.mat"
        names, annotations = read_mat(path, "class_names", "annotations")
        rows = _rows(path, annotations, "relative_im_path", "", None)
    else:
        labelled = "cars_test_annos_withlabels.mat"
        files = (
            "devkit/cars_meta.mat",
            "devkit/cars_train_annos.mat",
            f"{labelled}|devkit/{labelled}",
        )
        check_layout(root, "Cars196", "cars_train/", "cars_test/", *files)
        (names,) = read_mat(root / "devkit" / "cars_meta.mat", "class_names")
        test = root / labelled if (root / labelled).is_file() else root / "devkit" / labelled
        rows = _split_rows(root / "devkit" / "cars_train_annos.mat", test)
    classes = [str(title) for title in names]
    return pack(_records(root, rows, classes, split_of), root, name, classes)


def _split_rows(train: Path, test: Path) -> Iterator[Row]:
    for path, folder, is_test in ((train, "cars_train/", False), (test, "cars_test/", True)):
        yield from _rows(path, read_mat(path, "annotations")[0], "fname", folder, is_test)


def _rows(
    path: Path, annotations: Any, image: str, folder: str, is_test: bool | None
) -> Iterator[Row]:
    extra = ("test",) if is_test is None else ()
    for name, number, *rest in fields(path, annotations, image, "class", *CORNERS, *extra):
        yield (
            f"{folder}{name}",
            int(number),
            bool(rest[4]) if is_test is None else is_test,
            tuple(rest[:4]),
        )


def _records(
    root: Path, rows: Iterator[Row], classes: list[str], split_of: SplitOf
) -> Iterator[Record]:
    """MATLAB counts pixels from 1 and includes the last."""
    for image, number, is_test, (x1, y1, x2, y2) in rows:
        if not 1 <= number <= len(classes):
            raise ValueError(f"{root / image}: class {number} is not between 1 and {len(classes)}")
        try:
            box = corners(max(int(x1) - 1, 0), max(int(y1) - 1, 0), int(x2), int(y2))
        except ValueError as error:
            raise ValueError(f"{root / image}: {error}") from error
        yield Record(image, classes[number - 1], split_of(number, is_test), (box,))
