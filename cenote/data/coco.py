"""COCO's JSON: instances (boxes, segmentations, crowds) and captions."""

from __future__ import annotations

import json
import os
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from .checks import LayoutError, check, check_entries, read_json
from .dataset import Dataset, pack
from .images import MAX_PIXELS, BadImage, read_image
from .record import SPLITS, Box, Problem, Record, box_classes
from .table import Strings, StringsBuilder

Object = Mapping[str, Any]
Mask = npt.NDArray[np.bool_]


class CocoFile(NamedTuple):
    """One JSON file of instances, and the files that belong to it."""

    path: Path
    images: Path | None = None  # the folder of the images; None: try the usual ones
    captions: Path | None = None
    only: Sequence[int] | None = None  # ids of the images to read, in this order


def read_coco(path: Path, images: Path | None = None, captions: Path | None = None) -> Dataset:
    """Read one JSON file; masks are drawn when they are read, 255 where there is only a crowd.

    `images` is the folder that the file names are relative to; by default the usual ones are
    tried. Several captions of an image are separated by newlines. The split is taken from the
    file's name, as in instances_val2017.json.
    """
    folder = path.resolve().parent
    if folder.name == "annotations":
        folder = folder.parent
    return read_coco_files([CocoFile(path, images, captions)], folder.name)


def read_coco_files(files: Sequence[CocoFile], name: str) -> Dataset:
    """Read several files, such as train and val, as one data set; its root is common to all."""
    sources = [_Annotations(file) for file in files]
    root = Path(os.path.commonpath([source.images for source in sources]))
    names = {number: name for source in sources for number, name in source.categories.items()}
    classes = list(dict.fromkeys(names[number] for number in sorted(names)))
    segmentations, sizes = StringsBuilder(), array("q")
    dataset = pack(_records(sources, root, segmentations, sizes), root, name, classes)
    problems = dataset.problems or ["none listed"]
    check(len(dataset), f"{files[0].path} contains no image: {problems[0]}")
    if segmentations.rows:
        column = segmentations.build(len(dataset))
        size_array = np.array(sizes).reshape(-1, 2)
        dataset.pixels = _CocoPixels(root, dataset.table.image, column, size_array)
    return dataset


class _Annotations:
    """One JSON file, checked, with its annotations by image."""

    def __init__(self, file: CocoFile) -> None:
        self.path, self.only = file.path, file.only
        content = _read_content(file.path)
        self.listed = check_entries(file.path, content["images"], "id", what="image")
        entries = content.get("categories", [])
        categories = check_entries(file.path, entries, "id", "name", what="category")
        ids = [entry["id"] for entry in (*categories, *self.listed)]
        check(all(map(_is_id, ids)), f"{file.path}: an id is not a number")
        self.categories = {int(c["id"]): str(c["name"]) for c in categories}
        # Without: image_info_test2017.json, captions. Nothing is known about the classes.
        self.has_instances = bool(categories and content.get("annotations"))
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


def _records(
    sources: Sequence[_Annotations], root: Path, segmentations: StringsBuilder, sizes: array[int]
) -> Iterator[Record | Problem]:
    """Yield the records; collect segmentations (as JSON) and sizes on the way."""
    for source in sources:
        prefix = os.path.relpath(source.images, root)
        for image in source.selected():
            if isinstance(image, Problem):
                yield image
                continue
            name = _file_name(image)
            if not name:
                yield Problem(f"{source.path}: image {image['id']} has no file_name")
                continue
            path = name if prefix == "." else f"{prefix}/{name}"
            boxes, captions, outlines = [], [], []
            for annotation in source.by_image.get(image["id"], ()):
                try:
                    if "caption" in annotation:
                        captions.append(" ".join(str(annotation["caption"]).split()))
                        continue
                    boxes.append(_box(annotation, source.categories))
                    polygons = _segmentation(annotation.get("segmentation") or [])
                    outlines += [(polygon, boxes[-1].crowd) for polygon in polygons]
                except (ValueError, TypeError, LookupError, OverflowError) as error:
                    reason = f"{error} is missing" if isinstance(error, KeyError) else error
                    number = annotation.get("id")
                    yield Problem(f"{source.path}: annotation {number} of {path}: {reason}")
            try:
                sizes.extend(_image_size(image))
            except (ValueError, TypeError, OverflowError):
                size = f"{image.get('width')!r:.20} x {image.get('height')!r:.20}"
                yield Problem(f"{source.path}: {path} cannot have {size} pixels")
                continue
            if outlines:
                row = len(sizes) // 2 - 1
                segmentations.put(row, json.dumps(outlines, separators=(",", ":")))
            caption = "\n".join(captions) or None
            labels = box_classes(boxes) if source.has_instances else None
            yield Record(
                path, split=source.split, boxes=tuple(boxes), caption=caption, labels=labels
            )


class _CocoPixels(NamedTuple):
    root: Path
    paths: Strings
    segmentations: Strings
    sizes: npt.NDArray[np.int64]  # (N, 2) height and width, 0 where the file does not say
    files: bool = True

    def image(self, row: int) -> Image.Image:
        return read_image(self.root / (self.paths[row] or ""))

    def mask(self, row: int) -> npt.NDArray[np.uint8] | None:
        """Draw a mask: 0 background, 1 object, 255 crowd without object; None if it has none."""
        text = self.segmentations[row]
        if text is None:
            return None
        height, width = self.sizes[row].tolist()
        if not (height and width):
            width, height = self.image(row).size
        union = np.zeros((height, width), np.uint8)
        try:
            for segmentation, crowd in json.loads(text):
                union[_draw(segmentation, height, width) & (union != 1)] = 255 if crowd else 1
        except ValueError as error:
            path = self.root / (self.paths[row] or "")
            raise BadImage(path, f"a segmentation does not fit: {error}") from error
        return union


def _image_size(image: Object) -> tuple[int, int]:
    """Return height and width, 0 where the file does not say."""
    height, width = (int(image.get(side) or 0) for side in ("height", "width"))
    check(0 <= height * width <= MAX_PIXELS and height >= 0, "more than an image has")
    return height, width


def _box(annotation: Object, categories: Mapping[int, str]) -> Box:
    x, y, width, height = (float(value) for value in annotation["bbox"])
    check(width > 0 and height > 0, f"its box is {width:g} x {height:g} pixels")  # also for NaN
    number = annotation["category_id"]
    check(number in categories, f"no category has the id {number}")
    crowd = bool(annotation.get("iscrowd"))
    return Box(x, y, x + width, y + height, categories[number], crowd=crowd)


def _read_content(path: Path) -> dict[str, Any]:
    content = read_json(path)
    kind = ", ".join(list(content)[:6]) if isinstance(content, dict) else type(content).__name__
    check(
        isinstance(content, dict) and "images" in content,
        f"{path} is not COCO's: expected an object with images and annotations, found {kind}",
    )
    return content  # type: ignore[no-any-return]


def _is_id(value: object) -> bool:
    return isinstance(value, int | float | str)  # some exporters write names as ids of images


def _file_name(image: Object) -> str | None:
    """Return the file name; LVIS has only the end of the URL."""
    name = image.get("file_name") or str(image.get("coco_url", "")).rpartition("/")[2]
    return name if isinstance(name, str) and name else None


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


# Segmentations: polygons, or lengths of runs.


def _segmentation(value: Any) -> list[Any]:
    """Return the polygons, or one object of run lengths; anything else is a ValueError."""
    if isinstance(value, dict):
        height, width = (int(side) for side in value["size"])
        counts = value["counts"]
        runs = unpack_runs(counts) if isinstance(counts, str) else [int(n) for n in counts]
        return [{"size": (height, width), "counts": runs}]
    # No `check`: formatting its message would take longer than reading the polygons.
    if not isinstance(value, list):
        raise ValueError(f"neither polygons nor run lengths but {str(value)[:40]}")
    for polygon in value:
        if len(polygon) % 2 or not isfinite(sum(polygon)):  # NaN and infinity show in the sum
            raise ValueError(f"a polygon needs pairs of numbers, got {str(polygon)[:40]}")
    return [polygon for polygon in value if len(polygon) >= 6]  # fewer corners enclose nothing


def _draw(segmentation: Any, height: int, width: int) -> Mask:
    if isinstance(segmentation, list):
        corners = np.array(segmentation, np.float32).reshape(-1, 2)
        return fill_polygon(corners, height, width)
    rows, columns = segmentation["size"]
    sizes = f"{columns} x {rows} pixels, not {width} x {height}"
    check((rows, columns) == (height, width), f"its run lengths are for {sizes}")
    return read_runs(np.array(segmentation["counts"], np.int64), height, width)


def fill_polygon(corners: npt.NDArray[np.floating[Any]], height: int, width: int) -> Mask:
    """Fill the pixels whose centre, at .5, is inside of the (N, 2) corners x, y (even-odd rule)."""
    (x1, y1), (x2, y2) = corners.astype(float).T, np.roll(corners, -1, axis=0).astype(float).T
    # The rows whose centre line an edge crosses: its upper end is included, its lower end is not,
    # so that corners count once.
    first_row = _first_centre(np.minimum(y1, y2), height)
    counts = _first_centre(np.maximum(y1, y2), height) - first_row
    edge = np.repeat(np.arange(len(x1)), counts)
    row = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts) + first_row[edge]
    crossing = x1[edge] + (row + 0.5 - y1[edge]) * (x2 - x1)[edge] / (y2 - y1)[edge]
    column = _first_centre(crossing, width)
    inside = np.zeros((height, width), bool)
    if len(row):  # most polygons are small: only their window is filled
        top, left, bottom, right = row.min(), column.min(), row.max() + 1, column.max() + 1
        shape = (bottom - top, right - left)
        cells = (row - top) * shape[1] + column - left
        crossings = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)
        # The window is one column narrower where the polygon leaves the image.
        window = inside[top:bottom, left:right]
        # Inside: an odd number of edges to the left.
        window[:] = crossings.cumsum(axis=1)[:, : window.shape[1]] % 2
    return inside


def _first_centre(position: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.int64]:
    """Return the first pixel whose centre is not before this position."""
    return np.clip(np.ceil(position - 0.5), 0, size).astype(np.int64)


def read_runs(counts: npt.NDArray[np.int64], height: int, width: int) -> Mask:
    """Decode lengths of runs of 0, 1, 0, ... down the columns."""
    fit = (counts >= 0).all() and counts.sum() == height * width
    check(fit, f"its runs cover {counts.sum()} pixels, the image has {height * width}")
    values = np.arange(len(counts)) % 2 == 1
    return np.repeat(values, counts).reshape(width, height).T


def unpack_runs(text: str) -> list[int]:
    """Decompress run lengths: five bits per character, from "0" on; the sixth bit means "more".

    From the fourth run on, the difference to the run two before is stored, in two's complement.
    """
    runs: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        if not 0 <= bits < 64:
            raise ValueError(f"{character!r} is not a character of compressed run lengths")
        value |= (bits & 31) << shift
        shift += 5
        check(shift <= 60, "a run is longer than any image")
        if not bits & 32:
            if bits & 16:
                value -= 1 << shift
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value = shift = 0
    check(not shift, "it ends in the middle of a run")
    return runs
