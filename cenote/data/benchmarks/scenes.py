"""Scenes with annotated objects: Pascal VOC 2007 and 2012, COCO, ADE20K."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ..checks import check_layout
from ..coco import CocoFile, read_coco_files
from ..dataset import Dataset, pack
from ..images import walk
from ..record import Record
from ..voc import read_names, read_voc
from .parsing import parse_lines, split_lines
from .registry import benchmark, first_folder

VOC_CLASSES = [
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa"),
    *("train", "tvmonitor"),
]
VOC_SOURCE = "The PASCAL Visual Object Classes home page (VOCtrainval and VOCtest archives)"
VOC_DETECTION = ("Annotations/", "JPEGImages/", "ImageSets/Main/trainval.txt")
VOC_SEGMENTATION = {split: f"ImageSets/Segmentation/{split}.txt" for split in ("train", "val")}
ADE_SPLITS = {"training": "train", "validation": "val"}


@benchmark(
    "voc07",
    "Pascal VOC 2007, detection: trainval and test",
    """\
VOCdevkit/VOC2007/Annotations/*.xml
VOCdevkit/VOC2007/ImageSets/Main/trainval.txt
VOCdevkit/VOC2007/ImageSets/Main/test.txt (optional)
VOCdevkit/VOC2007/JPEGImages/*.jpg""",
    VOC_SOURCE,
    VOC_DETECTION,
    inside=("VOCdevkit/VOC2007", "VOC2007"),
    splits=("trainval", "test"),
)
@benchmark(
    "voc12",
    "Pascal VOC 2012, detection: trainval (the ground truth of test is not public)",
    """\
VOCdevkit/VOC2012/Annotations/*.xml
VOCdevkit/VOC2012/ImageSets/Main/trainval.txt
VOCdevkit/VOC2012/JPEGImages/*.jpg""",
    VOC_SOURCE,
    VOC_DETECTION,
    inside=("VOCdevkit/VOC2012", "VOC2012"),
    splits=("trainval",),
)
def read_voc_detection(root: Path, splits: tuple[str, ...]) -> Dataset:
    return read_voc(root, None, splits, VOC_CLASSES)


@benchmark(
    "voc12-segmentation",
    "Pascal VOC 2012, segmentation: train and val; masks contain positions in the classes, 0 is the "
    "background",
    """\
VOCdevkit/VOC2012/ImageSets/Segmentation/train.txt
VOCdevkit/VOC2012/ImageSets/Segmentation/val.txt
VOCdevkit/VOC2012/SegmentationClass/*.png
VOCdevkit/VOC2012/JPEGImages/*.jpg""",
    VOC_SOURCE,
    (*VOC_SEGMENTATION.values(), "JPEGImages/", "SegmentationClass/"),
    inside=("VOCdevkit/VOC2012", "VOC2012"),
)
def read_voc12_segmentation(root: Path) -> Dataset:
    records = (
        Record(f"JPEGImages/{name}.jpg", split=split, masks=(f"SegmentationClass/{name}.png",))
        for split, path in VOC_SEGMENTATION.items()
        for name in read_names(root / path)
    )
    return pack(records, root, "VOC 2012", ["background", *VOC_CLASSES], mask_codes="classes")


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
    return read_coco_files([_coco_file(root, "train2017"), _coco_file(root, "val2017")], "coco")


@benchmark(
    "coco20k",
    "COCO 20k: the 19,817 images of train2014 selected for object discovery",
    "coco_20k_filenames.txt\nannotations/instances_train2014.json\ntrain2014/*.jpg",
    "cocodataset.org (2014 Train images, 2014 Train/Val annotations); the list from GitHub, "
    "valeoai/LOST (datasets/coco_20k_filenames.txt)",
    ["coco_20k_filenames.txt"],
)
def read_coco20k(root: Path) -> Dataset:
    file = _coco_file(root, "train2014")
    ids = list(parse_lines(root / "coco_20k_filenames.txt", _coco_id, 1))
    return read_coco_files([file._replace(only=ids)], "coco20k")


def _coco_file(root: Path, split: str) -> CocoFile:
    annotations, captions = (
        f"annotations/{kind}_{split}.json" for kind in ("instances", "captions")
    )
    check_layout(root, "COCO", annotations, f"{split}/|images/{split}/")
    file = CocoFile(root / annotations, first_folder(root, split, f"images/{split}"))
    if (root / captions).is_file():
        return file._replace(captions=root / captions)
    return file


def _coco_id(text: str) -> int:
    """Return the id in a name such as train2014/COCO_train2014_000000123456.jpg."""
    number = re.search(r"_(\d+)\.\w+$", text)
    if number is None:
        raise ValueError("expected COCO_train2014_NUMBER.jpg")
    return int(number[1])


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
    [
        "objectInfo150.txt",
        *(f"{kind}/{split}/" for kind in ("images", "annotations") for split in ADE_SPLITS),
    ],
    inside=["ADEChallengeData2016"],
)
def read_ade20k(root: Path) -> Dataset:
    # A class is the first of its synonyms, or all of them where two classes share it.
    synonyms = [row[-1].strip() for row in split_lines(root / "objectInfo150.txt", 5, "\t", skip=1)]
    first = [names.split(",")[0].strip() for names in synonyms]
    count = Counter(first)
    pairs = zip(first, synonyms, strict=True)
    classes = [name if count[name] == 1 else names for name, names in pairs]
    return pack(_ade_records(root), root, "ADE20K", classes, mask_codes="classes from 1")


def _ade_records(root: Path) -> Iterator[Record]:
    path, scenes = root / "sceneCategories.txt", dict[str, str]()
    if path.is_file():
        scenes = {row[0]: row[1] for row in split_lines(path, 2)}
    for folder, split in ADE_SPLITS.items():
        for image in walk(root, f"images/{folder}/"):
            name = Path(image).stem
            masks = (f"annotations/{folder}/{name}.png",)
            scene = {"scene": scenes[name]} if name in scenes else {}
            yield Record(image, split=split, masks=masks, attributes=scene)
