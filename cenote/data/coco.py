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

from .columns import Strings
from .dataset import Dataset
from .images import BadImage, read_image
from .json_files import checked_entries, read_json
from .outlines import Outlines, OutlinesBuilder
from .packing import pack
from .record import SPLITS, Box, Problem, Record
from .trees import WrongTree

Object = Mapping[str, Any]


def read_coco(
    json_path: Path,
    images: Path | None = None,
    name: str | None = None,
    captions: Path | None = None,
) -> Dataset:
    """Boxes from x, y, width, height to corners; masks are drawn when asked for, 255 where there is only a crowd.

    `images` is the folder that the file names are relative to; by default the usual ones are tried. Several captions of
    an image are one a line. The split is in the file's name, as in instances_val2017.json.
    """
    path = Path(json_path)
    part = Part(path, Path(images) if images else None, Path(captions) if captions else None)
    folder = path.resolve().parent
    return read_parts(
        [part], name or (folder.parent if folder.name == "annotations" else folder).name
    )


class Part(NamedTuple):
    """One file of instances, and what goes with it."""

    path: Path
    images: Path | None = None
    captions: Path | None = None
    only: Sequence[int] | None = None  # the ids of the images to read, in this order


def read_parts(parts: Sequence[Part], name: str) -> Dataset:
    """Several files, such as train and val, as one data set; its root is the folder that all their images share."""
    files = [_File(part) for part in parts]
    root = Path(os.path.commonpath([file.images for file in files]))
    names = {number: name for file in files for number, name in file.categories.items()}
    classes = list(dict.fromkeys(names[number] for number in sorted(names)))
    reading = _Reading(root)
    dataset = pack(reading.records(files), root, name, classes)
    if not len(dataset):
        raise ValueError(
            f"{parts[0].path} names no image: {dataset.problems[0] if dataset.problems else 'none listed'}"
        )
    if len(reading.outlines.rows):
        dataset.pixels = _Pixels(root, dataset.columns["image"], reading)
    return dataset


class _Pixels:
    """Images from their files, masks from their outlines."""

    files = True

    def __init__(self, root: Path, paths: Strings, reading: _Reading) -> None:
        self.root, self.paths = root, paths
        self.outlines: Outlines = reading.outlines.build(reading.rows)
        self.sizes = np.array(reading.sizes).reshape(-1, 2)

    def image(self, row: int) -> Image.Image:
        return read_image(self.root / (self.paths[row] or ""))

    def mask(self, row: int) -> npt.NDArray[np.uint8] | None:
        height, width = (int(side) for side in self.sizes[row])
        if not (height and width):
            width, height = self.image(row).size
        try:
            return self.outlines.mask(row, height, width)
        except ValueError as error:
            raise BadImage(
                self.root / (self.paths[row] or ""), f"a segmentation does not fit: {error}"
            ) from error


class _File:
    """One JSON file, checked, with its annotations by image."""

    def __init__(self, part: Part) -> None:
        self.path, self.only = part.path, part.only
        content = _content(part.path)
        self.listed = checked_entries(part.path, content["images"], "id", what="image")
        categories = checked_entries(
            part.path, content.get("categories", []), "id", "name", what="category"
        )
        self.categories = {int(c["id"]): str(c["name"]) for c in categories}
        self.annotations: defaultdict[Any, list[Object]] = defaultdict(list)
        for path, entries in (
            (part.path, content),
            (part.captions, part.captions and _content(part.captions)),
        ):
            found = entries.get("annotations", []) if entries else []
            for entry in checked_entries(path or part.path, found, "image_id", what="annotation"):
                self.annotations[entry["image_id"]].append(entry)
        self.images = part.images or _find_images(part.path, self.listed)
        self.split = SPLITS.get(_tag(part.path).rstrip("0123456789").lower())

    def chosen(self) -> Iterator[Object | Problem]:
        if self.only is None:
            yield from self.listed
            return
        by_id = {image["id"]: image for image in self.listed}
        for number in self.only:
            yield by_id.get(number) or Problem(f"{self.path}: no image has the id {number}")


class _Reading:
    """The records of the files; segmentations and sizes are kept on the way."""

    def __init__(self, root: Path) -> None:
        self.root, self.rows = root, 0
        self.outlines, self.sizes = OutlinesBuilder(), array("q")

    def records(self, files: Sequence[_File]) -> Iterator[Record | Problem]:
        for file in files:
            prefix = os.path.relpath(file.images, self.root)
            for image in file.chosen():
                if isinstance(image, Problem):
                    yield image
                elif not (name := _file_name(image)):
                    yield Problem(f"{file.path}: image {image['id']} has no file_name")
                else:
                    yield from self._record(
                        file, image, name if prefix == "." else f"{prefix}/{name}"
                    )

    def _record(self, file: _File, image: Object, name: str) -> Iterator[Record | Problem]:
        boxes, captions = [], []
        for annotation in file.annotations.get(image["id"], ()):
            try:
                if "caption" in annotation:
                    captions.append(" ".join(str(annotation["caption"]).split()))
                else:
                    boxes.append(_box(annotation, file.categories))
                    if annotation.get("segmentation"):
                        self.outlines.add(self.rows, annotation["segmentation"], boxes[-1].crowd)
            except (ValueError, TypeError, LookupError) as error:
                reason = f"{error} is missing" if isinstance(error, KeyError) else error
                yield Problem(f"{file.path}: annotation {annotation.get('id')} of {name}: {reason}")
        self.sizes.extend(int(image.get(side) or 0) for side in ("height", "width"))
        self.rows += 1
        yield Record(
            name, split=file.split, boxes=tuple(boxes), caption="\n".join(captions) or None
        )


def _box(annotation: Object, categories: Mapping[int, str]) -> Box:
    x, y, width, height = (float(value) for value in annotation["bbox"])
    if not (width > 0 and height > 0):  # also false for NaN
        raise ValueError(f"its box is {width:g} x {height:g} pixels")
    number = annotation["category_id"]
    if number not in categories:
        raise ValueError(f"no category has the id {number}")
    return Box(
        x, y, x + width, y + height, categories[number], crowd=bool(annotation.get("iscrowd"))
    )


def _content(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict) or "images" not in content:
        found = (
            ", ".join(list(content)[:6])
            if isinstance(content, dict)
            else f"a {type(content).__name__}"
        )
        raise ValueError(
            f"{path} is not COCO's: expected an object with images and annotations, found {found}"
        )
    return content


def _file_name(image: Object) -> str | None:
    """LVIS names a file only by the end of its address."""
    return image.get("file_name") or str(image.get("coco_url", "")).rpartition("/")[2] or None


def _tag(path: Path) -> str:
    """train2017 of instances_train2017.json."""
    return path.stem.rpartition("_")[2]


def _find_images(path: Path, listed: Sequence[Object]) -> Path:
    """The first of the usual folders in which one of the first images lies."""
    here, tag = path.absolute().parent, _tag(path)
    places = [
        p
        for base in (here, here.parent)
        for p in (base / tag, base / "images" / tag, base / "images", base)
    ]
    names = [name for image in listed[:20] if (name := _file_name(image))]
    for place in places:
        if any((place / name).is_file() for name in names):
            return place
    if not names:
        return here
    tried = ", ".join(str(os.path.relpath(place, here)) for place in places)
    raise WrongTree(
        f"{path}: its images were not found: looked for {names[0]} in {tried} beside it; found none"
    )
