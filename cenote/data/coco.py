"""COCO's JSON: instances (boxes, segmentations, crowds) and captions."""

from __future__ import annotations

import os
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from .checks import LayoutError, check, check_entries, read_json
from .dataset import Dataset, pack
from .images import BadImage, read_image
from .polygons import SegmentationsBuilder
from .record import SPLITS, Box, Problem, Record
from .table import Strings

Object = Mapping[str, Any]


class CocoFile(NamedTuple):
    """One JSON file of instances, and the files that belong to it."""

    path: Path
    images: Path | None = None  # the folder of the images; None: try the usual ones
    captions: Path | None = None
    only: Sequence[int] | None = None  # ids of the images to read, in this order


def read_coco(
    json_path: Path,
    images: Path | None = None,
    name: str | None = None,
    captions: Path | None = None,
) -> Dataset:
    """Read one JSON file; masks are drawn when they are read, 255 where there is only a crowd.

    `images` is the folder that the file names are relative to; by default the usual ones are
    tried. Several captions of an image are separated by newlines. The split is taken from the
    file's name, as in instances_val2017.json.
    """
    path = Path(json_path)
    folder = path.resolve().parent
    if folder.name == "annotations":
        folder = folder.parent
    return read_coco_files([CocoFile(path, images, captions)], name or folder.name)


def read_coco_files(files: Sequence[CocoFile], name: str) -> Dataset:
    """Read several files, such as train and val, as one data set; its root is common to all."""
    sources = [_Annotations(file) for file in files]
    root = Path(os.path.commonpath([source.images for source in sources]))
    names = {number: name for source in sources for number, name in source.categories.items()}
    classes = list(dict.fromkeys(names[number] for number in sorted(names)))
    reader = _CocoReader(root)
    dataset = pack(reader.records(sources), root, name, classes)
    if not len(dataset):
        problems = dataset.problems or ["none listed"]
        raise ValueError(f"{files[0].path} contains no image: {problems[0]}")
    if reader.segmentations.rows:
        dataset.pixels = _CocoPixels(root, dataset.table.image, reader)
    return dataset


class _Annotations:
    """One JSON file, checked, with its annotations by image."""

    def __init__(self, file: CocoFile) -> None:
        self.path, self.only = file.path, file.only
        content = _read_content(file.path)
        self.listed = check_entries(file.path, content["images"], "id", what="image")
        entries = content.get("categories", [])
        categories = check_entries(file.path, entries, "id", "name", what="category")
        self.categories = {int(c["id"]): str(c["name"]) for c in categories}
        self.by_image: defaultdict[Any, list[Object]] = defaultdict(list)
        self._add(file.path, content)
        if file.captions:
            self._add(file.captions, _read_content(file.captions))
        self.images = file.images or _find_images(file.path, self.listed)
        self.split = SPLITS.get(_tag(file.path).rstrip("0123456789").lower())

    def _add(self, path: Path, content: Object) -> None:
        entries = content.get("annotations", [])
        for entry in check_entries(path, entries, "image_id", what="annotation"):
            self.by_image[entry["image_id"]].append(entry)

    def selected(self) -> Iterator[Object | Problem]:
        if self.only is None:
            yield from self.listed
            return
        by_id = {image["id"]: image for image in self.listed}
        for number in self.only:
            yield by_id.get(number) or Problem(f"{self.path}: no image has the id {number}")


class _CocoReader:
    """Makes the records; collects segmentations and sizes on the way."""

    def __init__(self, root: Path) -> None:
        self.root, self.rows = root, 0
        self.segmentations, self.sizes = SegmentationsBuilder(), array("q")

    def records(self, sources: Sequence[_Annotations]) -> Iterator[Record | Problem]:
        for source in sources:
            prefix = os.path.relpath(source.images, self.root)
            for image in source.selected():
                if isinstance(image, Problem):
                    yield image
                elif name := _file_name(image):
                    path = name if prefix == "." else f"{prefix}/{name}"
                    yield from self._record(source, image, path)
                else:
                    yield Problem(f"{source.path}: image {image['id']} has no file_name")

    def _record(self, source: _Annotations, image: Object, path: str) -> Iterator[Record | Problem]:
        boxes, captions = [], []
        for annotation in source.by_image.get(image["id"], ()):
            try:
                if "caption" in annotation:
                    captions.append(" ".join(str(annotation["caption"]).split()))
                    continue
                boxes.append(_box(annotation, source.categories))
                if annotation.get("segmentation"):
                    crowd = boxes[-1].crowd
                    self.segmentations.add(self.rows, annotation["segmentation"], crowd)
            except (ValueError, TypeError, LookupError) as error:
                reason = f"{error} is missing" if isinstance(error, KeyError) else error
                number = annotation.get("id")
                yield Problem(f"{source.path}: annotation {number} of {path}: {reason}")
        self.sizes.extend(int(image.get(side) or 0) for side in ("height", "width"))
        self.rows += 1
        caption = "\n".join(captions) or None
        yield Record(path, split=source.split, boxes=tuple(boxes), caption=caption)


class _CocoPixels:
    """Images from their files, masks from their segmentations."""

    files = True

    def __init__(self, root: Path, paths: Strings, reader: _CocoReader) -> None:
        self.root, self.paths = root, paths
        self.segmentations = reader.segmentations.build(reader.rows)
        self.sizes = np.array(reader.sizes).reshape(-1, 2)

    def image(self, row: int) -> Image.Image:
        return read_image(self.root / (self.paths[row] or ""))

    def mask(self, row: int) -> npt.NDArray[np.uint8] | None:
        height, width = (int(side) for side in self.sizes[row])
        if not (height and width):
            width, height = self.image(row).size
        try:
            return self.segmentations.mask(row, height, width)
        except ValueError as error:
            path = self.root / (self.paths[row] or "")
            raise BadImage(path, f"a segmentation does not fit: {error}") from error


def _box(annotation: Object, categories: Mapping[int, str]) -> Box:
    x, y, width, height = (float(value) for value in annotation["bbox"])
    check(width > 0 and height > 0, f"its box is {width:g} x {height:g} pixels")  # also for NaN
    number = annotation["category_id"]
    check(number in categories, f"no category has the id {number}")
    crowd = bool(annotation.get("iscrowd"))
    return Box(x, y, x + width, y + height, categories[number], crowd=crowd)


def _read_content(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if isinstance(content, dict) and "images" in content:
        return content
    kind = f"a {type(content).__name__}"
    if isinstance(content, dict):
        kind = ", ".join(list(content)[:6])
    raise ValueError(
        f"{path} is not COCO's: expected an object with images and annotations, found {kind}"
    )


def _file_name(image: Object) -> str | None:
    """Return the file name; LVIS has only the end of the URL."""
    return image.get("file_name") or str(image.get("coco_url", "")).rpartition("/")[2] or None


def _tag(path: Path) -> str:
    """Return train2017 of instances_train2017.json."""
    return path.stem.rpartition("_")[2]


def _find_images(path: Path, listed: Sequence[Object]) -> Path:
    """Return the first of the usual folders that contains one of the first images."""
    parent, tag = path.absolute().parent, _tag(path)
    folders = [
        folder
        for base in (parent, parent.parent)
        for folder in (base / tag, base / "images" / tag, base / "images", base)
    ]
    names = [name for image in listed[:20] if (name := _file_name(image))]
    if not names:
        return parent
    for folder in folders:
        if any((folder / name).is_file() for name in names):
            return folder
    tried = ", ".join(str(os.path.relpath(folder, parent)) for folder in folders)
    raise LayoutError(f"{path}: its images were not found: no {names[0]} in {tried} beside it")
