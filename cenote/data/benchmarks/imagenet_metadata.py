"""Classes, validation labels and boxes in the releases of ImageNet."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from ..checks import check
from ..record import Box
from ..voc import read_annotation
from .parsing import layout_error, make_box, parse_lines, read_mat, struct_rows

WNID = re.compile(r"n\d{8}")
DEVKIT = "ILSVRC2012_devkit_t12/data"
SOLUTION = re.compile(r"(n\d{8}( -?\d+){4}\s*)+")  # wnid and box, for each object
BoxReader = Callable[[str, str], tuple[Box, ...]]  # of an image's name without suffix, and its wnid


def wnids_in(names: Iterable[str]) -> list[str]:
    """Return the names that are WordNet ids."""
    return [name for name in names if WNID.fullmatch(name)]


def class_names(root: Path) -> dict[str, str]:
    """Return names by wnid, sorted by wnid, from the first file that has them; else nothing."""
    if (path := root / "LOC_synset_mapping.txt").is_file():
        return _unique(dict(parse_lines(path, lambda wnid, names: (_wnid(wnid), names), 2)))
    if (path := root / "imagenet_class_index.json").is_file():
        try:
            index = json.loads(path.read_bytes())
            return _unique({_wnid(wnid): name for wnid, name in index.values()})
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not an index of classes ({error})") from error
    if (path := root / DEVKIT / "meta.mat").is_file():
        return _unique({wnid: name for _, wnid, name in _synsets(path)})
    if (path := root / "README.txt").is_file():  # of ImageNet-A and -R
        lines = path.read_text("utf-8", "replace").splitlines()
        pairs = [line.split(maxsplit=1) for line in lines]
        return _unique(dict(pair for pair in pairs if len(pair) == 2 and WNID.fullmatch(pair[0])))
    return {}


def _unique(names: dict[str, str]) -> dict[str, str]:
    """Return the first name of each class, with the wnid if two classes share it (crane)."""
    items = sorted(names.items())
    first = {wnid: name.split(",")[0].replace("_", " ").strip() for wnid, name in items}
    count = Counter(first.values())
    return {wnid: name if count[name] == 1 else f"{name} ({wnid})" for wnid, name in first.items()}


def _wnid(text: str) -> str:
    check(WNID.fullmatch(text), f"{text} is not a WordNet id")
    return text


def _synsets(path: Path) -> list[tuple[int, str, str]]:
    """Return number, wnid and words of the 1000 classes: the synsets without children."""
    (synsets,) = read_mat(path, "synsets")
    rows = struct_rows(path, synsets, "num_children", "ILSVRC2012_ID", "WNID", "words")
    return [(int(k), str(wnid), str(words)) for children, k, wnid, words in rows if not children]


def validation_wnids(root: Path, folder: str) -> dict[str, str]:
    """Return the wnid of each validation image by its name without suffix."""
    if (path := root / "LOC_val_solution.csv").is_file():
        rows = parse_lines(path, lambda image, text: (image, _wnid(text.split()[0])), 2, ",", 1)
        return dict(rows)
    path = root / DEVKIT / "ILSVRC2012_validation_ground_truth.txt"
    if path.is_file() and (root / DEVKIT / "meta.mat").is_file():
        numbers = {str(number): wnid for number, wnid, _ in _synsets(root / DEVKIT / "meta.mat")}
        wnids = parse_lines(path, lambda number: numbers[number], 1)
        return {f"ILSVRC2012_val_{k:08d}": wnid for k, wnid in enumerate(wnids, 1)}
    expected = f"class folders in {folder}/, or LOC_val_solution.csv, or {DEVKIT}/"
    raise layout_error(root, "ImageNet-1k with validation labels", expected)


def box_reader(root: Path, split: str) -> BoxReader:
    """Return a reader of the boxes of an image's class, from LOC_*_solution.csv or XML, if any.

    ImageNet counts pixels from 0 and includes the last: one is added to the right and the bottom.
    """
    table = root / f"LOC_{split}_solution.csv"
    if table.is_file():
        solutions = dict(parse_lines(table, _solution, 2, ",", skip=1))
        return lambda image, wnid: tuple(_boxes(solutions.get(image, ""), wnid))
    xml = root / "ILSVRC" / "Annotations" / "CLS-LOC" / split
    if not xml.is_dir():
        return lambda image, wnid: ()
    if split == "train":
        return lambda image, wnid: _xml_boxes(xml / wnid / f"{image}.xml", wnid)
    return lambda image, wnid: _xml_boxes(xml / f"{image}.xml", wnid)


def _solution(image: str, text: str) -> tuple[str, str]:
    check(SOLUTION.fullmatch(text), "expected a class and four numbers for each box")
    return image, text


def _boxes(solution: str, wnid: str) -> Iterable[Box]:
    values = solution.split()
    for k in range(0, len(values), 5):
        if values[k] == wnid:
            x1, y1, x2, y2 = map(int, values[k + 1 : k + 5])
            yield make_box(x1, y1, x2 + 1, y2 + 1)


def _xml_boxes(path: Path, wnid: str) -> tuple[Box, ...]:
    if not path.is_file():  # only 42% of the training images have one
        return ()
    boxes = [box for box in read_annotation(path) if box.label == wnid]
    # The reader of VOC subtracted 1 from the first corner.
    return tuple(Box(b.x1 + 1, b.y1 + 1, b.x2 + 1, b.y2 + 1) for b in boxes)
