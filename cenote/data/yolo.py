"""The layout of YOLO detectors: data.yaml, images/ and labels/*.txt."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .checks import LayoutError, check, errors_in, read_yaml
from .dataset import Dataset, pack
from .images import image_size, walk
from .record import Box, Problem, Record, box_classes


def read_yolo(path: Path) -> Dataset:
    """Read a data.yaml with `names` and the folders or lists of images of train, val and test.

    The labels of images/a.jpg are in labels/a.txt; without that file an image has no objects. A
    polygon becomes the box around it.
    """
    with errors_in(path):
        description = read_yaml(path.read_text(encoding="utf-8"))
        names = description["names"]
        numbers = sorted(names) if isinstance(names, dict) else range(len(names))
        classes = {int(number): str(names[number]) for number in numbers}
    root = path.parent / str(description.get("path") or "")
    if not root.is_dir():  # the folder was moved
        root = path.parent
    records = _records(root, description, classes)
    dataset = pack(records, root, path.resolve().parent.name, [*classes.values()])
    if not len(dataset):
        problems = dataset.problems or ["it has no train, val or test"]
        raise LayoutError(f"{path} has no images: {problems[0]}")
    return dataset


def _records(
    root: Path, description: Mapping[str, Any], classes: Mapping[int, str]
) -> Iterator[Record | Problem]:
    is_pose = "kpt_shape" in description
    for split in ("train", "val", "test"):
        places = description.get(split) or []
        for place in [places] if isinstance(places, str) else places:
            location = root / place
            if not location.exists():  # Roboflow writes ../train/images
                location = root / place.removeprefix("../")
            if not location.exists():
                yield Problem(f"{location}: no such file or folder, {split} is skipped")
                continue
            for image in _images(location):
                try:
                    boxes = tuple(_boxes(image, classes, is_pose))
                except ValueError as error:
                    yield Problem(str(error))
                    continue
                name = os.path.relpath(image, root)
                yield Record(name, split=split, boxes=boxes, labels=box_classes(boxes))


def _images(location: Path) -> Iterator[Path]:
    if location.is_dir():
        yield from (location / name for name in walk(location, ""))
        return
    for line in location.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        if line.strip():
            yield location.parent / line.strip()


def _boxes(image: Path, classes: Mapping[int, str], is_pose: bool) -> Iterator[Box]:
    """Yield the objects of an image; a ValueError says what is wrong with its labels."""
    before, _, after = str(image).rpartition(f"{os.sep}images{os.sep}")
    labels = image.with_suffix(".txt")
    if after:
        labels = Path(before, "labels", after).with_suffix(".txt")
    lines = labels.read_text(encoding="utf-8").splitlines() if labels.is_file() else []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            index, *values = map(float, line.split())
            check(index in classes and len(values) >= 4, "")
        except ValueError:
            raise ValueError(f"{labels}: line {number} is not a class and a box: {line}") from None
        width, height = image_size(image)
        if is_pose or len(values) in (4, 5):  # centre and size, and maybe a confidence
            x, y, w, h = values[:4]
            corners = x - w / 2, y - h / 2, x + w / 2, y + h / 2
        else:
            corners = min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])
        sides = (width, height, width, height)
        x1, y1, x2, y2 = (round(a * side, 2) for a, side in zip(corners, sides, strict=True))
        yield Box(x1, y1, x2, y2, classes[int(index)])
