"""Stanford Cars (Cars196), in two folders with the devkit, or all in car_ims/."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..checks import check, check_layout, errors_in
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
NEEDS = ("cars_annos.mat|devkit/cars_meta.mat",)
Row = tuple[str, int, bool, tuple[Any, ...]]  # image, class from 1, is it a test image, corners


@benchmark(
    "cars",
    "Cars196, classification: the official split, 8,144 train and 8,041 test",
    TREE,
    SOURCE,
    NEEDS,
)
@benchmark(
    "cars-retrieval",
    "Cars196, retrieval: the first 98 classes train, the others test",
    TREE,
    SOURCE,
    NEEDS,
    train_classes=98,
)
def read_cars(root: Path, train_classes: int | None = None) -> Dataset:
    """Read the official split, or the first `train_classes` as train."""
    path = root / "cars_annos.mat"
    if path.is_file():
        check_layout(root, "Cars196", "cars_annos.mat", "car_ims/")
        names, annotations = read_mat(path, "class_names", "annotations")
        fields = ("relative_im_path", "class", "test", *CORNERS)
        rows: Iterable[Row] = (
            (str(name), int(number), bool(test), tuple(box))
            for name, number, test, *box in struct_rows(path, annotations, *fields)
        )
    else:
        devkit = ("devkit/cars_meta.mat", "devkit/cars_train_annos.mat")
        test_labels = f"{TEST_LABELS}|devkit/{TEST_LABELS}"
        check_layout(root, "Cars196", "cars_train/", "cars_test/", *devkit, test_labels)
        (names,) = read_mat(root / "devkit" / "cars_meta.mat", "class_names")
        rows = _split_rows(root)
    classes = [str(name) for name in names]
    return pack(_records(root, rows, classes, train_classes), root, "Cars196", classes)


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
    root: Path, rows: Iterable[Row], classes: list[str], train_classes: int | None
) -> Iterator[Record]:
    """Yield the records; MATLAB counts pixels from 1 and includes the last."""
    for image, number, is_test, (x1, y1, x2, y2) in rows:
        if train_classes is not None:
            is_test = number > train_classes
        with errors_in(root / image):
            box = make_box(max(int(x1) - 1, 0), max(int(y1) - 1, 0), int(x2), int(y2))
            check(1 <= number <= len(classes), f"class {number} of {len(classes)}")
        yield Record(image, classes[number - 1], "test" if is_test else "train", (box,))
