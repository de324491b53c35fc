"""What the releases of ImageNet say of classes, validation images and boxes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from ..layout import LayoutError, list_contents
from ..record import Box
from ..voc import read_annotation
from .parsing import corners, fields, parse_lines, read_mat

WNID = re.compile(r"n\d{8}")
DEVKIT = "ILSVRC2012_devkit_t12/data"
BOXES = re.compile(r"(n\d{8}( -?\d+){4}\s*)+")
Boxes = Callable[[str, str], tuple[Box, ...]]  # of an image's name without suffix, and of its wnid


def wnids_in(names: Iterable[str]) -> list[str]:
    return [name for name in names if WNID.fullmatch(name)]


def class_names(root: Path) -> dict[str, str]:
    """Readable names by wnid, sorted by wnid, from the first file that has them; else nothing."""
    if (path := root / "LOC_synset_mapping.txt").is_file():
        return _unique(dict(parse_lines(path, lambda wnid, names: (_wnid(wnid), names), 2)))
    if (path := root / "imagenet_class_index.json").is_file():
        try:
            return _unique(
                {_wnid(wnid): name for wnid, name in json.loads(path.read_bytes()).values()}
            )
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is no index of classes ({error})") from error
    if (path := root / DEVKIT / "meta.mat").is_file():
        return _unique({wnid: name for _, wnid, name in _synsets(path)})
    if (path := root / "README.txt").is_file():  # of ImageNet-A and -R
        lines = path.read_text("utf-8", "replace").splitlines()
        pairs = [line.split(maxsplit=1) for line in lines]
        return _unique(
            {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and WNID.fullmatch(pair[0])}
        )
    return {}


def _unique(names: dict[str, str]) -> dict[str, str]:
    """The first of each class's names; where two classes share it (crane, maillot), with the wnid behind."""
    first = {
        wnid: name.split(",")[0].replace("_", " ").strip() for wnid, name in sorted(names.items())
    }
    count = Counter(first.values())
    return {wnid: name if count[name] == 1 else f"{name} ({wnid})" for wnid, name in first.items()}


def _wnid(text: str) -> str:
    if not WNID.fullmatch(text):
        raise ValueError(f"{text} is no WordNet id")
    return text


def _synsets(path: Path) -> list[tuple[int, str, str]]:
    """Number, wnid and words of the 1000 classes; synsets with children are no classes."""
    (synsets,) = read_mat(path, "synsets")
    rows = fields(path, synsets, "num_children", "ILSVRC2012_ID", "WNID", "words")
    return [
        (int(number), str(wnid), str(words))
        for children, number, wnid, words in rows
        if children == 0
    ]


def validation_wnids(root: Path, folder: str) -> dict[str, str]:
    """The class of each validation image, by its name without suffix, where they lie in no class folders."""
    if (path := root / "LOC_val_solution.csv").is_file():
        return dict(
            parse_lines(path, lambda image, truth: (image, _wnid(truth.split()[0])), 2, ",", skip=1)
        )
    path = root / DEVKIT / "ILSVRC2012_validation_ground_truth.txt"
    if path.is_file() and (root / DEVKIT / "meta.mat").is_file():
        numbers = {str(number): wnid for number, wnid, _ in _synsets(root / DEVKIT / "meta.mat")}
        found = parse_lines(path, lambda number: numbers[number], 1)
        return {f"ILSVRC2012_val_{place:08d}": wnid for place, wnid in enumerate(found, 1)}
    raise LayoutError(
        f"{root / folder} has no class folders: expected LOC_val_solution.csv or {DEVKIT}/ in {root}; "
        f"found {list_contents(root)}"
    )


def boxes_of(root: Path, split: str) -> Boxes:
    """The boxes of an image's class, from LOC_*_solution.csv or from XML; none where neither is there.

    ImageNet counts pixels from 0 and includes the last: one is added to the right and the bottom.
    """
    table = root / f"LOC_{split}_solution.csv"
    if table.is_file():
        truth = dict(parse_lines(table, _solution, 2, ",", skip=1))
        return lambda image, wnid: tuple(_boxes(truth.get(image, ""), wnid))
    xml = root / "ILSVRC" / "Annotations" / "CLS-LOC" / split
    if xml.is_dir():
        return lambda image, wnid: _xml_boxes(
            xml / (wnid if split == "train" else "") / f"{image}.xml", wnid
        )
    return lambda image, wnid: ()


def _solution(image: str, truth: str) -> tuple[str, str]:
    if not BOXES.fullmatch(truth):
        raise ValueError("a class and four numbers for each box expected")
    return image, truth


def _boxes(truth: str, wnid: str) -> Iterable[Box]:
    values = truth.split()
    for k in range(0, len(values), 5):
        if values[k] == wnid:
            x1, y1, x2, y2 = map(int, values[k + 1 : k + 5])
            yield corners(x1, y1, x2 + 1, y2 + 1)


def _xml_boxes(path: Path, wnid: str) -> tuple[Box, ...]:
    if not path.is_file():  # only 42% of the training images have one
        return ()
    found = [box for box in read_annotation(path) if box.label == wnid]
    return tuple(
        Box(b.x1 + 1, b.y1 + 1, b.x2 + 1, b.y2 + 1) for b in found
    )  # VOC's reader took them as counted from 1
