"""Pascal VOC's layout: Annotations/*.xml, JPEGImages/ and ImageSets/Main/*.txt."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from .dataset import Dataset
from .images import SUFFIXES
from .packing import pack
from .record import Box, Problem, Record
from .trees import WrongTree, contents, expect

IMAGES = ("JPEGImages", "images", "Images", "")  # where they may lie, the official name first
# Only a document type can define entities, and those can grow without end.
DOCTYPE = "it declares a document type, which an annotation does not need; not read"


def read_voc(
    root: Path,
    name: str | None = None,
    split_lists: Sequence[str] | None = None,
    classes: list[str] | None = None,
) -> Dataset:
    """Boxes become (xmin - 1, ymin - 1, xmax, ymax): VOC counts pixels from 1 and includes the last.

    `split_lists` names the lists of ImageSets/Main to read, each a split; the first must be there. By default train,
    val and test, or trainval where there is no train. Without lists every annotated image is read, in no split.
    """
    root = Path(root)
    expect(root, "in the layout of Pascal VOC", "Annotations/")
    folder = next(name for name in IMAGES if (root / name).is_dir())
    images = _names(root / folder)
    rows = _listed(root, split_lists)
    prefix = f"{folder}/" if folder else ""
    dataset = pack(_records(root, prefix, images, rows), root, name or root.resolve().name, classes)
    if not len(dataset):
        reason = dataset.problems[0] if dataset.problems else f"found {contents(root)}"
        raise WrongTree(
            f"{root} holds no image of Pascal VOC's layout: expected JPEGImages/*.jpg; {reason}"
        )
    return dataset


def read_annotation(path: Path) -> list[Box]:
    """The objects of one XML file; ValueError says what is wrong with it."""
    try:
        content = path.read_bytes()
        if b"<!DOCTYPE" in content.replace(b"\0", b""):  # also in UTF-16
            raise ValueError(DOCTYPE)
        parser = ElementTree.XMLParser(target=_Plain())
        parser.feed(content)
        annotation: ElementTree.Element = parser.close()
        return [_box(found) for found in annotation.iter("object")]
    except ElementTree.ParseError as error:
        raise ValueError(f"{path} is not XML: {error}") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


class _Plain(ElementTree.TreeBuilder):
    """The document type again, for encodings in which it looks different; here the parser says so only at the end."""

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        raise ValueError(DOCTYPE)


def _box(found: ElementTree.Element) -> Box:
    label = (found.findtext("name") or "").strip() or None
    corners = [found.findtext(f"bndbox/{key}") for key in ("xmin", "ymin", "xmax", "ymax")]
    try:
        x1, y1, x2, y2 = (float(corner or "") for corner in corners)
    except ValueError:
        raise ValueError(f"object '{label}' has no box of four numbers: {corners}") from None
    if not (x1 <= x2 and y1 <= y2):  # also false for NaN
        raise ValueError(
            f"object '{label}' has a box with xmin > xmax or ymin > ymax: {x1:g}, {y1:g}, {x2:g}, {y2:g}"
        )
    difficult, truncated = (
        found.findtext(key, "0").strip() == "1" for key in ("difficult", "truncated")
    )
    return Box(x1 - 1, y1 - 1, x2, y2, label, difficult, truncated)


def _listed(root: Path, split_lists: Sequence[str] | None) -> Iterator[tuple[str, str | None]]:
    """Names of images with their splits."""
    lists = root / "ImageSets" / "Main"
    if split_lists is not None:
        expect(root, "in the layout of Pascal VOC", f"ImageSets/Main/{split_lists[0]}.txt")
    elif not (lists / "train.txt").is_file() and (lists / "trainval.txt").is_file():
        split_lists = ("trainval", "test")
    found = [
        split
        for split in split_lists or ("train", "val", "test")
        if (lists / f"{split}.txt").is_file()
    ]
    if not found:
        names = sorted(
            name.removesuffix(".xml")
            for name in os.listdir(root / "Annotations")
            if name.endswith(".xml")
        )
        return ((name, None) for name in names)
    return ((name, split) for split in found for name in read_names(lists / f"{split}.txt"))


def read_names(path: Path) -> list[str]:
    """The first word of each line."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return [line.split()[0] for line in file if line.strip()]


def _names(folder: Path) -> dict[str, str]:
    """Image files by their names without suffix."""
    found = (os.path.splitext(name) for name in sorted(os.listdir(folder)))
    return {stem: stem + suffix for stem, suffix in found if suffix.lower() in SUFFIXES}


def _records(
    root: Path, prefix: str, images: dict[str, str], rows: Iterator[tuple[str, str | None]]
) -> Iterator[Record | Problem]:
    for name, split in rows:
        if name not in images:
            yield Problem(f"{root / prefix / name}: no image of this name")
            continue
        annotation = root / "Annotations" / f"{name}.xml"
        boxes: tuple[Box, ...] = ()
        if annotation.is_file():  # VOC12's test images have none
            try:
                boxes = tuple(read_annotation(annotation))
            except ValueError as error:
                yield Problem(str(error))
                continue
        yield Record(prefix + images[name], split=split, boxes=boxes)
