"""Lists in the format of wsolevaluation: a folder of text files for each of train, val and test."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..dataset import Dataset, pack
from ..layout import LayoutError, check_layout, list_contents
from ..record import Box, Record
from .parsing import split_lines
from .registry import benchmark

SPLITS = ("train", "val", "test")  # train-weaksup, train-fullsup and test in the paper's words
SOURCE = "GitHub, clovaai/wsolevaluation (metadata/, and dataset/ by its scripts)"


def _tree(name: str, images: str) -> str:
    return f"""\
metadata/{name}/train/image_ids.txt
metadata/{name}/train/class_labels.txt
metadata/{name}/val/image_ids.txt
metadata/{name}/val/class_labels.txt
metadata/{name}/val/localization.txt
metadata/{name}/test/image_ids.txt
metadata/{name}/test/class_labels.txt
metadata/{name}/test/localization.txt
dataset/{name}/{images}"""


@benchmark(
    "wsol-cub",
    "CUB-200-2011 for localization; val is CUBV2",
    _tree("CUB", "001.Black_footed_Albatross/*.jpg"),
    SOURCE,
)
def read_wsol_cub(root: Path) -> Dataset:
    return read_published(root, "wsol-cub", "CUB")


@benchmark(
    "wsol-ilsvrc",
    "ImageNet-1k for localization; val is ImageNetV2, test the official validation",
    _tree("ILSVRC", "val/*.JPEG"),
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
    "your own: image_ids.txt (PATH), class_labels.txt (PATH,NUMBER), localization.txt (PATH,X1,Y1,X2,Y2 or "
    "PATH,MASK,IGNORE)",
)
def read_wsol(root: Path) -> Dataset:
    check_layout(root, "a set with lists in the format of wsolevaluation", "metadata/", "images/")
    return read_lists(root, "wsol", "metadata", "images")


def read_published(
    root: Path, name: str, folder: str, titles: Mapping[str, str] | None = None
) -> Dataset:
    """One of the three sets as the scripts of wsolevaluation lay them out."""
    check_layout(
        root,
        "a checkout of wsolevaluation with its data",
        f"metadata/{folder}/",
        f"dataset/{folder}/",
    )
    return read_lists(root, name, f"metadata/{folder}", f"dataset/{folder}", titles)


def read_lists(
    root: Path, name: str, metadata: str, images: str, titles: Mapping[str, str] | None = None
) -> Dataset:
    """`titles` gives classes readable names. A class is called by its folder, or by its number if that says nothing."""
    splits = [split for split in SPLITS if (root / metadata / split / "image_ids.txt").is_file()]
    if not splits:
        raise LayoutError(
            f"{root} lacks {metadata}/train/image_ids.txt and those of val and test: expected one of them at least, "
            f"found {list_contents(root / metadata)}"
        )
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
    found = {}
    for image, number in split_lines(path, 2, ","):
        if not number.isdigit():
            raise ValueError(f"{path}: the class of {image} is not a number but {number!r}")
        found[image] = int(number)
    return found


def _class_names(
    numbers: Mapping[str, Mapping[str, int]], titles: Mapping[str, str]
) -> dict[int, str]:
    """In the order of the numbers."""
    known = sorted({number for found in numbers.values() for number in found.values()})
    for found in numbers.values():
        folders: defaultdict[int, set[str]] = defaultdict(set)
        for image, number in found.items():
            folders[number].add(image.rpartition("/")[0].rpartition("/")[2])
        words = {number: next(iter(names)) for number, names in folders.items() if len(names) == 1}
        # Each class a folder of its own, for all classes, and not only the number's order in another numbering.
        if len(words) == len(known) == len(set(words.values())) and not all(
            w.isdigit() for w in words.values()
        ):
            return {number: titles.get(words[number], words[number]) for number in known}
    return {number: str(number) for number in known}


def _records(
    folder: Path, images: str, numbers: Mapping[str, int], classes: Mapping[int, str]
) -> Iterator[Record]:
    boxes: defaultdict[str, list[Box]] = defaultdict(list)
    masks: defaultdict[str, list[str]] = defaultdict(list)
    ignores: dict[str, str] = {}
    for line, (image, *truth) in enumerate(_localization(folder / "localization.txt"), 1):
        try:
            if len(truth) == 4:
                x1, y1, x2, y2 = (
                    float(value) for value in truth
                )  # as stored: CUB's are x, y, x + w, y + h
                boxes[image].append(Box(x1, y1, x2, y2))
            else:
                mask, ignore = truth
                masks[image].append(images + mask)
                if ignore:
                    ignores[image] = images + ignore
        except ValueError:
            sentence = "expected PATH,X1,Y1,X2,Y2 or PATH,MASK,IGNORE"
            raise ValueError(
                f"{folder / 'localization.txt'}, line {line}: {sentence}, found {truth}"
            ) from None
    for (image,) in split_lines(folder / "image_ids.txt", 1):
        if image not in numbers:
            raise ValueError(
                f"{folder / 'class_labels.txt'} has no class for {image}, which image_ids.txt lists"
            )
        label = classes[numbers[image]]
        found = tuple(boxes.get(image, ())), tuple(masks.get(image, ()))
        yield Record(
            images + image, label, boxes=found[0], masks=found[1], ignore=ignores.get(image)
        )


def _localization(path: Path) -> Iterator[list[str]]:
    """Training images need none."""
    if path.is_file():
        for (line,) in split_lines(path, 1):
            yield line.split(",")
