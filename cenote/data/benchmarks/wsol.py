"""Lists in the format of wsolevaluation: a folder of text files for each of train, val and test.

CUB-200-2011, ImageNet-1k and OpenImages30k (100 classes, masks of the objects and of pixels to
ignore) are published in it.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ..checks import check, check_layout
from ..dataset import Dataset, pack
from ..record import Box, Record
from .parsing import parse_lines, split_lines
from .registry import Reader, benchmark

SPLITS = ("train", "val", "test")  # in the paper: train-weaksup, train-fullsup and test
FILES = ("image_ids", "class_labels", "localization")
SOURCE = "GitHub, clovaai/wsolevaluation (metadata/, and dataset/ by its scripts)"
# Names of Open Images' classes.
DESCRIPTIONS = ("class-descriptions-boxable.csv", "oidv7-class-descriptions.csv")
MASKS = "*_m01226z_*.png, *_ignore.png"


def _published(
    name: str, folder: str, title: str, images: str, source: str = SOURCE
) -> Callable[[Reader], Reader]:
    """Register one of the sets that wsolevaluation publishes."""
    lists = [f"{split}/{file}.txt" for split in SPLITS for file in FILES]
    lists.remove("train/localization.txt")
    return benchmark(
        name,
        title,
        "\n".join([*(f"metadata/{folder}/{path}" for path in lists), images]),
        source,
        (f"metadata/{folder}/", f"dataset/{folder}/"),
        metadata=f"metadata/{folder}",
        images=f"dataset/{folder}",
    )


@_published(
    "wsol-cub",
    "CUB",
    "CUB-200-2011 for localization; val is CUBV2",
    "dataset/CUB/001.Black_footed_Albatross/*.jpg",
)
@_published(
    "wsol-ilsvrc",
    "ILSVRC",
    "ImageNet-1k for localization; val is ImageNetV2, test the official validation",
    "dataset/ILSVRC/val/*.JPEG",
)
@_published(
    "openimages",
    "OpenImages",
    "OpenImages30k (wsolevaluation): 29,819 train, 2,500 val, 5,000 test, masks and ignore regions",
    f"""\
dataset/OpenImages/train/01226z/*.jpg
dataset/OpenImages/val/01226z/*.jpg, {MASKS}
dataset/OpenImages/test/01226z/*.jpg, {MASKS}""",
    "GitHub, clovaai/wsolevaluation (dataset/prepare_openimages.sh)",
)
@benchmark(
    "wsol",
    "any data with lists in the format of wsolevaluation",
    """\
metadata/test/image_ids.txt
metadata/test/class_labels.txt
metadata/test/localization.txt
metadata/train/...
metadata/val/...
images/...""",
    "your own: image_ids.txt (PATH), class_labels.txt (PATH,NUMBER), localization.txt "
    "(PATH,X1,Y1,X2,Y2 or PATH,MASK,IGNORE)",
    ("metadata/", "images/"),
    metadata="metadata",
    images="images",
)
def read_wsol(root: Path, metadata: str, images: str) -> Dataset:
    """Read the lists; a class is named by its folder, or by its number if that says nothing.

    With a list of Open Images itself in the root, its classes have words as names.
    """
    lists = {split: f"{metadata}/{split}/image_ids.txt" for split in SPLITS}
    check_layout(root, "with lists of wsolevaluation", "|".join(lists.values()))
    splits = [split for split, path in lists.items() if (root / path).is_file()]
    for split in splits:
        check_layout(root, "complete", f"{metadata}/{split}/class_labels.txt")
    numbers = {}
    for split in splits:
        path = root / metadata / split / "class_labels.txt"
        numbers[split] = dict(parse_lines(path, lambda image, k: (image, int(k)), 2, ","))
    classes = _class_names(numbers, _titles(root))
    records = (
        record._replace(split=split)
        for split in splits
        for record in _records(root / metadata / split, f"{images}/", numbers[split], classes)
    )
    return pack(records, root, "wsol", classes=list(classes.values()))


def _titles(root: Path) -> dict[str, str]:
    """Return the words of Open Images for folders, from the last list that exists."""
    titles = {}
    for path in (root / name for name in DESCRIPTIONS):
        if path.is_file():
            with open(path, encoding="utf-8", newline="") as file:
                rows = [row for row in csv.reader(file) if len(row) > 1]
            titles = {row[0].removeprefix("/m/"): row[1] for row in rows}
    return titles


def _class_names(
    numbers: Mapping[str, Mapping[str, int]], titles: Mapping[str, str]
) -> dict[int, str]:
    """Return names in the order of the numbers."""
    classes = sorted({number for by_image in numbers.values() for number in by_image.values()})
    for by_image in numbers.values():
        folders: defaultdict[int, set[str]] = defaultdict(set)
        for image, number in by_image.items():
            folders[number].add(image.rpartition("/")[0].rpartition("/")[2])
        names = {number: min(words) for number, words in folders.items() if len(words) == 1}
        # Every class has a folder of its own, and the folders are not just other numbers.
        unique = len(names) == len(classes) == len(set(names.values()))
        if unique and not all(name.isdigit() for name in names.values()):
            return {number: titles.get(names[number], names[number]) for number in classes}
    return {number: str(number) for number in classes}


def _records(
    folder: Path, images: str, numbers: Mapping[str, int], classes: Mapping[int, str]
) -> Iterator[Record]:
    boxes: defaultdict[str, list[Box]] = defaultdict(list)
    masks: defaultdict[str, list[str]] = defaultdict(list)
    ignores: dict[str, str] = {}
    path = folder / "localization.txt"
    if path.is_file():  # training images need no boxes
        for image, value in parse_lines(path, _box_or_masks, 1):
            if isinstance(value, Box):
                boxes[image].append(value)
                continue
            mask, ignore = value
            masks[image].append(images + mask)
            if ignore:
                ignores[image] = images + ignore
    path = folder / "class_labels.txt"
    for (image,) in split_lines(folder / "image_ids.txt", 1):
        check(image in numbers, f"{path} has no class for {image}, which image_ids.txt lists")
        yield Record(
            images + image,
            classes[numbers[image]],
            boxes=tuple(boxes.get(image, ())),
            masks=tuple(masks.get(image, ())),
            ignore=ignores.get(image),
        )


def _box_or_masks(line: str) -> tuple[str, Box | list[str]]:
    image, *values = line.split(",")
    check(len(values) in (2, 4), "expected PATH,X1,Y1,X2,Y2 or PATH,MASK,IGNORE")
    if len(values) == 2:
        return image, values
    x1, y1, x2, y2 = map(float, values)  # as stored: CUB's are x, y, x + w, y + h
    return image, Box(x1, y1, x2, y2)
