"""Pascal VOC 2007 and 2012."""

from __future__ import annotations

from pathlib import Path

from ..checks import check_layout
from ..dataset import Dataset, pack
from ..record import Record
from ..voc import read_names, read_voc
from .registry import benchmark

CLASSES = [
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa"),
    *("train", "tvmonitor"),
]
SOURCE = "The PASCAL Visual Object Classes home page (VOCtrainval and VOCtest archives)"
SEGMENTATION = {split: f"ImageSets/Segmentation/{split}.txt" for split in ("train", "val")}


def _tree(year: str, *lines: str) -> str:
    return "\n".join(f"VOCdevkit/VOC{year}/{line}" for line in (*lines, "JPEGImages/*.jpg"))


@benchmark(
    "voc07",
    "Pascal VOC 2007, detection: trainval and test",
    _tree(
        "2007",
        "Annotations/*.xml",
        "ImageSets/Main/trainval.txt",
        "ImageSets/Main/test.txt (optional)",
    ),
    SOURCE,
)
def read_voc07(root: Path) -> Dataset:
    return _detection(root, "voc07", "2007", ("trainval", "test"))


@benchmark(
    "voc12",
    "Pascal VOC 2012, detection: trainval (the ground truth of test is not public)",
    _tree("2012", "Annotations/*.xml", "ImageSets/Main/trainval.txt"),
    SOURCE,
)
def read_voc12(root: Path) -> Dataset:
    return _detection(root, "voc12", "2012", ("trainval",))


@benchmark(
    "voc12-segmentation",
    "Pascal VOC 2012, segmentation: train and val; masks contain positions in the classes, 0 is the "
    "background",
    _tree("2012", *SEGMENTATION.values(), "SegmentationClass/*.png"),
    SOURCE,
)
def read_voc12_segmentation(root: Path) -> Dataset:
    root = _year_folder(root, "2012")
    folders = ("JPEGImages/", "SegmentationClass/")
    check_layout(root, "Pascal VOC 2012, segmentation", *SEGMENTATION.values(), *folders)
    records = (
        Record(f"JPEGImages/{name}.jpg", split=split, masks=(f"SegmentationClass/{name}.png",))
        for split, path in SEGMENTATION.items()
        for name in read_names(root / path)
    )
    classes = ["background", *CLASSES]
    return pack(records, root, "voc12-segmentation", classes, mask_codes="classes")


def _detection(root: Path, name: str, year: str, splits: tuple[str, ...]) -> Dataset:
    root = _year_folder(root, year)
    paths = ("Annotations/", "JPEGImages/", f"ImageSets/Main/{splits[0]}.txt")
    check_layout(root, f"Pascal VOC {year}", *paths)
    return read_voc(root, name, splits, CLASSES)


def _year_folder(root: Path, year: str) -> Path:
    """Return the folder of the year; the root may be the archive's folder or that of the year."""
    folders = (root / "VOCdevkit" / f"VOC{year}", root / f"VOC{year}", root)
    return next((folder for folder in folders if folder.is_dir()), root)
