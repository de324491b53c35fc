"""Found boxes and masks as files that others read: COCO's JSON, Pascal VOC's XML, a CSV list, and PNG."""

from __future__ import annotations

import csv
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
from PIL import Image

from .files import write_atomically

Mask = npt.NDArray[np.bool_]
CSV_HEADER = (
    "file",
    "width",
    "height",
    "class_name",
    "x1",
    "y1",
    "x2",
    "y2",
    "score",
)  # of boxes.csv


class ImageBoxes(NamedTuple):
    """Of one image: boxes (k, 4) in whole pixels, far edges outside, each with a score and perhaps a mask (H, W)."""

    path: Path
    name: str  # of the files that are its own
    size: tuple[int, int]  # (width, height), upright
    label: str | None
    boxes: Sequence[Sequence[int]]
    scores: Sequence[float]
    masks: Sequence[Mask] = ()


class Writer(ABC):
    """Takes images one by one; a file of all of them gets its name when the last is in it."""

    @abstractmethod
    def add(self, found: ImageBoxes) -> None: ...


class VOC(Writer):
    """Annotations/NAME.xml: pixels counted from 1, the last one included."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "Annotations"

    def add(self, found: ImageBoxes) -> None:
        root = ElementTree.Element("annotation")
        _text(root, folder=_plain(found.path.parent.name), filename=_plain(found.path.name))
        _text(
            ElementTree.SubElement(root, "size"), width=found.size[0], height=found.size[1], depth=3
        )
        _text(root, segmented=0)
        for (x0, y0, x1, y1), score in zip(found.boxes, found.scores, strict=True):
            entry = ElementTree.SubElement(root, "object")
            _text(
                entry,
                name=_plain(found.label or "object"),
                pose="Unspecified",
                truncated=0,
                difficult=0,
            )
            _text(
                ElementTree.SubElement(entry, "bndbox"), xmin=x0 + 1, ymin=y0 + 1, xmax=x1, ymax=y1
            )
            _text(entry, score=f"{score:.4f}")
        ElementTree.indent(root)
        with write_atomically(self.folder / f"{found.name}.xml") as path:
            ElementTree.ElementTree(root).write(path, encoding="utf-8")


class Masks(Writer):
    """masks/NAME.png: 0, and 255 where an object is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "masks"

    def add(self, found: ImageBoxes) -> None:
        union = np.zeros(found.size[::-1], bool)
        for mask in found.masks:
            union |= mask
        with write_atomically(self.folder / f"{found.name}.png") as path:
            Image.fromarray(union.astype(np.uint8) * 255).save(path)


class CSV(Writer):
    """One box a line; an image in which nothing was found has a line without corners."""

    def __init__(self, file: TextIO, folder: Path) -> None:
        self.lines, self.folder = csv.writer(file), folder
        self.lines.writerow(CSV_HEADER)

    def add(self, found: ImageBoxes) -> None:
        image = [_relative(found.path, self.folder), *found.size, found.label or ""]
        for box, score in zip(found.boxes, found.scores, strict=True):
            self.lines.writerow([*image, *box, f"{score:.4f}"])
        if not len(found.boxes):
            self.lines.writerow([*image, "", "", "", "", ""])


class COCO(Writer):
    """Instances with scores. Annotations go to the file as they come, masks with them; of images a line is kept."""

    def __init__(self, file: TextIO, folder: Path, classes: Sequence[str]) -> None:
        self.file, self.folder = file, folder
        self.numbers = {name: number for number, name in enumerate(classes, 1)}
        self.images: list[dict[str, Any]] = []
        self.count = 0
        file.write('{"annotations": [')

    def add(self, found: ImageBoxes) -> None:
        width, height = found.size
        number = len(self.images) + 1
        self.images.append(
            {
                "id": number,
                "file_name": _relative(found.path, self.folder),
                "width": width,
                "height": height,
            }
        )
        for i, ((x0, y0, x1, y1), score) in enumerate(zip(found.boxes, found.scores, strict=True)):
            entry: dict[str, Any] = {
                "id": self.count + 1,
                "image_id": number,
                "category_id": self.numbers[found.label or "object"],
                "bbox": [int(x0), int(y0), int(x1 - x0), int(y1 - y0)],
                "area": int((x1 - x0) * (y1 - y0)),
                "iscrowd": 0,
                "score": round(float(score), 4),
            }
            if len(found.masks):
                entry["segmentation"] = {"size": [height, width], "counts": runs(found.masks[i])}
                entry["area"] = int(found.masks[i].sum())
            self.file.write(("," if self.count else "") + "\n" + json.dumps(entry))
            self.count += 1

    def finish(self) -> None:
        """The closing lines, when all went well."""
        categories = [
            {"id": number, "name": name, "supercategory": ""}
            for name, number in self.numbers.items()
        ]
        self.file.write(
            f'],\n"images": {json.dumps(self.images)},\n"categories": {json.dumps(categories)}}}\n'
        )


@contextmanager
def open_writers(
    folder: Path, formats: Sequence[str], masks: bool = False, classes: Sequence[str] = ("object",)
) -> Iterator[list[Writer]]:
    """Writers of these formats ("coco", "voc", "csv") in a folder; without success nothing has its final name.

    Paths in boxes.json and boxes.csv are relative to the folder. `classes` are all that labels may be.
    """
    unknown = [name for name in formats if name not in ("coco", "voc", "csv")]
    if unknown:
        raise ValueError(f"no format '{unknown[0]}': coco, voc, csv")
    folder.mkdir(parents=True, exist_ok=True)
    _sweep_up(folder)
    writers: list[Writer] = [VOC(folder)] if "voc" in formats else []
    writers += [Masks(folder)] if masks else []
    with ExitStack() as files:
        if "csv" in formats:
            writers.append(CSV(files.enter_context(_whole(folder / "boxes.csv")), folder))
        coco = (
            COCO(files.enter_context(_whole(folder / "boxes.json")), folder, classes)
            if "coco" in formats
            else None
        )
        yield writers if coco is None else [*writers, coco]
        if coco is not None:
            coco.finish()


def _sweep_up(folder: Path) -> None:
    """What runs that were killed left half-written."""
    for begun in (".boxes.*.*", "Annotations/.*.*.xml", "masks/.*.*.png"):
        for path in folder.glob(begun):
            number = path.name.split(".")[-2]
            if number.isdecimal() and not _lives(int(number)):
                path.unlink(missing_ok=True)


def _lives(number: int) -> bool:
    if os.name != "posix":  # there, to ask is to end it
        return True
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def _whole(path: Path) -> Iterator[TextIO]:
    with (
        write_atomically(path) as temporary,
        temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        yield file


def runs(mask: Mask) -> list[int]:
    """Lengths of runs of 0, 1, 0, ... down the columns, as COCO stores a mask."""
    flat = np.concatenate([[False], mask.T.ravel(), [False]])
    changes = np.flatnonzero(flat[1:] != flat[:-1])  # where a run of 1 begins or ends
    ends = (
        np.append(changes, mask.size) if not len(changes) or changes[-1] != mask.size else changes
    )
    return [int(length) for length in np.diff(ends, prepend=0)]


def _text(parent: ElementTree.Element, **children: object) -> None:
    for name, value in children.items():
        ElementTree.SubElement(parent, name).text = str(value)


def _plain(text: str) -> str:
    """XML has no place for control characters, nor for bytes that are no text."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _relative(path: Path, folder: Path) -> str:
    """As the readers take it, whatever the current folder is then."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # another drive
        return path.absolute().as_posix()
