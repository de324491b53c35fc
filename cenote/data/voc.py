"""Pascal VOC's layout: Annotations/*.xml, JPEGImages/ and ImageSets/Main/*.txt."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from .checks import LayoutError, check, check_layout, errors_in, list_contents
from .dataset import Dataset, pack
from .images import is_image_name
from .record import Box, Problem, Record, box_classes

IMAGE_FOLDERS = ("JPEGImages", "images", "Images", "")  # the official name first
# Only a document type can define entities, and those can expand without limit.
DOCTYPE = "it declares a document type, which annotations do not need; not read"


def read_voc(
    root: Path,
    name: str | None = None,
    split_lists: Sequence[str] | None = None,
    classes: list[str] | None = None,
) -> Dataset:
    """Read a folder in VOC's layout.

    Boxes become (xmin - 1, ymin - 1, xmax, ymax): VOC counts pixels from 1 and includes the last.
    `split_lists` are the lists of ImageSets/Main to read, each a split; the first must exist. By
    default train, val and test, or trainval without train. Without lists every annotated
    image is read, without a split.
    """
    root = Path(root)
    check_layout(root, "in the layout of Pascal VOC", "Annotations/|annotations/")
    annotations = annotation_folder(root) or root / "Annotations"
    folder = next(name for name in IMAGE_FOLDERS if (root / name).is_dir())
    names = _names_and_splits(root, annotations, split_lists)
    records = _records(root, annotations, f"{folder}/" if folder else "", names)
    dataset = pack(records, root, name or root.resolve().name, classes)
    if not len(dataset):
        problems = dataset.problems or [f"found {list_contents(root)}"]
        raise LayoutError(
            f"{root} contains no image in the layout of Pascal VOC: expected JPEGImages/*.jpg; "
            f"{problems[0]}"
        )
    return dataset


def annotation_folder(root: Path) -> Path | None:
    """Return Annotations/, or annotations/ if it has XML files: COCO's has JSON files."""
    if (root / "Annotations").is_dir():
        return root / "Annotations"
    folder = root / "annotations"
    return folder if any(folder.glob("*.xml")) else None


def read_annotation(path: Path) -> list[Box]:
    """Return the objects of one XML file; a ValueError says what is wrong with it."""
    with errors_in(path):
        content = path.read_bytes()
        check(b"<!DOCTYPE" not in content.replace(b"\0", b""), DOCTYPE)  # in UTF-16, too
        parser = ElementTree.XMLParser(target=_NoDoctype())
        parser.feed(content)
        annotation: ElementTree.Element = parser.close()
        return [_box(element) for element in annotation.iter("object")]


class _NoDoctype(ElementTree.TreeBuilder):
    """Refuses document types in encodings in which the search for bytes does not find them."""

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        raise ValueError(DOCTYPE)


def _box(element: ElementTree.Element) -> Box:
    label = (element.findtext("name") or "").strip() or None
    corners = [element.findtext(f"bndbox/{key}") for key in ("xmin", "ymin", "xmax", "ymax")]
    try:
        x1, y1, x2, y2 = (float(corner or "") for corner in corners)
    except ValueError:
        raise ValueError(f"object '{label}' has no box of four numbers: {corners}") from None
    if not (x1 <= x2 and y1 <= y2):  # also for NaN
        values = f"{x1:g}, {y1:g}, {x2:g}, {y2:g}"
        raise ValueError(f"object '{label}' has a box with xmin > xmax or ymin > ymax: {values}")
    flags = (element.findtext(key, "0").strip() == "1" for key in ("difficult", "truncated"))
    return Box(x1 - 1, y1 - 1, x2, y2, label, *flags)


def _names_and_splits(
    root: Path, annotations: Path, split_lists: Sequence[str] | None
) -> Iterator[tuple[str, str | None]]:
    lists = root / "ImageSets" / "Main"
    if split_lists is not None:
        check_layout(root, "in the layout of Pascal VOC", f"ImageSets/Main/{split_lists[0]}.txt")
    elif not (lists / "train.txt").is_file() and (lists / "trainval.txt").is_file():
        split_lists = ("trainval", "test")
    names = split_lists or ("train", "val", "test")
    splits = [split for split in names if (lists / f"{split}.txt").is_file()]
    if splits:
        return ((name, split) for split in splits for name in read_names(lists / f"{split}.txt"))
    files = (os.path.splitext(name) for name in sorted(os.listdir(annotations)))
    return ((stem, None) for stem, suffix in files if suffix == ".xml" and stem[0] != ".")


def read_names(path: Path) -> list[str]:
    """Return the first word of each line."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return [line.split()[0] for line in file if line.strip()]


def _records(
    root: Path, annotations: Path, prefix: str, names: Iterator[tuple[str, str | None]]
) -> Iterator[Record | Problem]:
    files = sorted(os.listdir(root / prefix))
    images = {os.path.splitext(file)[0]: file for file in files if is_image_name(file)}
    for name, split in names:
        if name not in images:
            yield Problem(f"{root / prefix / name}: no image of this name")
            continue
        annotation = annotations / f"{name}.xml"
        boxes, labels = tuple[Box, ...](), None
        if annotation.is_file():  # VOC12's test images have none
            try:
                boxes = tuple(read_annotation(annotation))
                labels = box_classes(boxes)
            except ValueError as error:
                yield Problem(str(error))
                continue
        yield Record(prefix + images[name], split=split, boxes=boxes, labels=labels)
