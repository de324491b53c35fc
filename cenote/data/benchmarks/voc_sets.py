"""Pascal VOC 2007 and 2012."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..dataset import Dataset, pack
from ..layout import check_layout
from ..record import Record
from ..voc import read_names, read_voc
from .registry import benchmark

CLASSES = [
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *(
        "diningtable",
        "dog",
        "horse",
        "motorbike",
        "person",
        "pottedplant",
        "sheep",
        "sofa",
        "train",
        "tvmonitor",
    ),
]
SOURCE = "The PASCAL Visual Object Classes home page (VOCtrainval and VOCtest archives)"


def _tree(year: str, *more: str) -> str:
    lines = ("Annotations/*.xml", "ImageSets/Main/trainval.txt", *more, "JPEGImages/*.jpg")
    return "\n".join(f"VOCdevkit/VOC{year}/{line}" for line in lines)


@benchmark(
    "voc07",
    "Pascal VOC 2007, detection: trainval and test",
    _tree("2007", "ImageSets/Main/test.txt (optional)"),
    SOURCE,
)
def read_voc07(root: Path) -> Dataset:
    return _detection(root, "voc07", "2007", ("trainval", "test"))


@benchmark(
    "voc12",
    "Pascal VOC 2012, detection: trainval (the test set's truth is not public)",
    _tree("2012"),
    SOURCE,
)
def read_voc12(root: Path) -> Dataset:
    return _detection(root, "voc12", "2012", ("trainval",))


@benchmark(
    "voc12-segmentation",
    "Pascal VOC 2012, segmentation: train and val; masks hold positions in the classes, 0 is the background",
    "\n".join(
        f"VOCdevkit/VOC2012/{line}"
        for line in (
            "ImageSets/Segmentation/train.txt",
            "ImageSets/Segmentation/val.txt",
            "JPEGImages/*.jpg",
            "SegmentationClass/*.png",
        )
    ),
    SOURCE,
)
def read_voc12_segmentation(root: Path) -> Dataset:
    root = _year(root, "2012")
    lists = {split: f"ImageSets/Segmentation/{split}.txt" for split in ("train", "val")}
    check_layout(
        root, "Pascal VOC 2012, segmentation", *lists.values(), "JPEGImages/", "SegmentationClass/"
    )
    classes = ["background", *CLASSES]
    return pack(_segmented(root, lists), root, "voc12-segmentation", classes, mask_codes="classes")


def _segmented(root: Path, lists: dict[str, str]) -> Iterator[Record]:
    for split, path in lists.items():
        for name in read_names(root / path):
            yield Record(
                f"JPEGImages/{name}.jpg", split=split, masks=(f"SegmentationClass/{name}.png",)
            )


def _detection(root: Path, name: str, year: str, splits: tuple[str, ...]) -> Dataset:
    root = _year(root, year)
    check_layout(
        root, f"Pascal VOC {year}", "Annotations/", "JPEGImages/", f"ImageSets/Main/{splits[0]}.txt"
    )
    return read_voc(root, name, splits, CLASSES)


def _year(root: Path, year: str) -> Path:
    """The archive's folder may be given, or the one of the year in it."""
    places = (root / "VOCdevkit" / f"VOC{year}", root / f"VOC{year}", root)
    return next((place for place in places if place.is_dir()), root)
