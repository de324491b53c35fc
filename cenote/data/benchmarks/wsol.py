"""Lists in the format of wsolevaluation: a folder of text files for each of train, val and test."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..checks import check, check_layout
from ..dataset import Dataset, pack
from ..record import Box, Record
from .parsing import layout_error, split_lines
from .registry import benchmark

SPLITS = ("train", "val", "test")  # in the paper: train-weaksup, train-fullsup and test
SOURCE = "GitHub, clovaai/wsolevaluation (metadata/, and dataset/ by its scripts)"
FORMAT = "expected PATH,X1,Y1,X2,Y2 or PATH,MASK,IGNORE"


def metadata_tree(name: str) -> str:
    """Return the lists of one of the published sets, for its tree."""
    files = ("image_ids", "class_labels", "localization")
    paths = [f"{split}/{file}.txt" for split in SPLITS for file in files]
    paths.remove("train/localization.txt")
    return "\n".join(f"metadata/{name}/{path}" for path in paths)


@benchmark(
    "wsol-cub",
    "CUB-200-2011 for localization; val is CUBV2",
    f"{metadata_tree('CUB')}\ndataset/CUB/001.Black_footed_Albatross/*.jpg",
    SOURCE,
)
def read_wsol_cub(root: Path) -> Dataset:
    return read_published(root, "wsol-cub", "CUB")


@benchmark(
    "wsol-ilsvrc",
    "ImageNet-1k for localization; val is ImageNetV2, test the official validation",
    f"{metadata_tree('ILSVRC')}\ndataset/ILSVRC/val/*.JPEG",
    SOURCE,
)
def read_wsol_ilsvrc(root: Path) -> Dataset:
    return read_published(root, "wsol-ilsvrc", "ILSVRC")


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
)
def read_wsol(root: Path) -> Dataset:
    check_layout(root, "a set with lists in the format of wsolevaluation", "metadata/", "images/")
    return read_lists(root, "wsol", "metadata", "images")


def read_published(
    root: Path, name: str, folder: str, titles: Mapping[str, str] | None = None
) -> Dataset:
    """Read one of the three sets in the layout of wsolevaluation's scripts."""
    metadata, images = f"metadata/{folder}", f"dataset/{folder}"
    what = "a checkout of wsolevaluation with its data"
    check_layout(root, what, f"{metadata}/", f"{images}/")
    return read_lists(root, name, metadata, images, titles)


def read_lists(
    root: Path, name: str, metadata: str, images: str, titles: Mapping[str, str] | None = None
) -> Dataset:
    """Read the lists; a class is named by its folder, or by its number if that says nothing.

    `titles` gives folders readable names.
    """
    splits = [split for split in SPLITS if (root / metadata / split / "image_ids.txt").is_file()]
    if not splits:
        expected = "train/image_ids.txt, val/image_ids.txt or test/image_ids.txt"
        raise layout_error(root / metadata, "metadata of wsolevaluation", expected)
    for split in splits:
        check_layout(root, "complete", f"{metadata}/{split}/class_labels.txt")
    numbers = {split: _numbers(root / metadata / split / "class_labels.txt") for split in splits}
    classes = _class_names(numbers, titles or {})
    records = (
        record._replace(split=split)
        for split in splits
        for record in _records(root / metadata / split, f"{images}/", numbers[split], classes)
    )
    return pack(records, root, name, classes=list(classes.values()))


def _numbers(path: Path) -> dict[str, int]:
    numbers = {}
    for image, number in split_lines(path, 2, ","):
        check(number.isdigit(), f"{path}: the class of {image} is not a number but {number!r}")
        numbers[image] = int(number)
    return numbers


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
    for line, (image, *values) in enumerate(_localization(path), 1):
        try:
            if len(values) == 4:
                x1, y1, x2, y2 = map(float, values)  # as stored: CUB's are x, y, x + w, y + h
                boxes[image].append(Box(x1, y1, x2, y2))
            else:
                mask, ignore = values
                masks[image].append(images + mask)
                if ignore:
                    ignores[image] = images + ignore
        except ValueError:
            raise ValueError(f"{path}, line {line}: {FORMAT}, found {values}") from None
    for (image,) in split_lines(folder / "image_ids.txt", 1):
        if image not in numbers:
            path = folder / "class_labels.txt"
            raise ValueError(f"{path} has no class for {image}, which image_ids.txt lists")
        yield Record(
            images + image,
            classes[numbers[image]],
            boxes=tuple(boxes.get(image, ())),
            masks=tuple(masks.get(image, ())),
            ignore=ignores.get(image),
        )


def _localization(path: Path) -> Iterator[list[str]]:
    """Yield the rows, none without the file: training images need no boxes."""
    if path.is_file():
        for (line,) in split_lines(path, 1):
            yield line.split(",")
