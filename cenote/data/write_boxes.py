"""Write predicted boxes and masks: COCO, Pascal VOC, CSV, YOLO, Label Studio, PNG masks."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TextIO
from urllib.parse import quote
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import yaml
from PIL import Image, PngImagePlugin

from .checks import check
from .csv_files import CsvRows
from .files import write_atomically, write_text
from .images import read_image

OUTPUTS = {
    "coco": "boxes.json",
    "csv": "boxes.csv",
    "voc": "Annotations/{}.xml",
    "label-studio": "label-studio.json",
    "masks": "masks/{}.png",
    "pictures": "pictures/{}.jpg",
}
# What the files of Cenote contain near the start, by suffix.
CSV_HEADER = ["file", "width", "height", "class_name", "x1", "y1", "x2", "y2", "score"]
MARKS = {
    ".csv": (",".join(CSV_HEADER).encode(),),
    ".json": (b'{"annotations": [', b'"model_version": "cenote"'),
    ".xml": (b"<score>",),
    ".png": (b"Software\0cenote",),
    ".jpg": (b"written by cenote",),
    ".yaml": (b"# written by cenote",),
}
Mask = npt.NDArray[np.bool_]
FORMATS = ("coco", "voc", "csv", "yolo", "label-studio")
# Photographs that detectors read; others are converted to JPEG.
YOLO_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff"}
VALIDATION = 5  # one photograph of five is for validation


class ImageBoxes(NamedTuple):
    """Boxes (k, 4) of one image in whole pixels, right and bottom exclusive, with scores."""

    path: Path
    name: str  # of the image's XML and PNG files
    size: tuple[int, int]  # (width, height), upright
    label: str | None
    boxes: Sequence[Sequence[int]]
    scores: Sequence[float]
    masks: Sequence[Mask] = ()  # (H, W), one per box
    labels: Sequence[str | None] = ()  # one per box, if not all are `label`
    read: Callable[[], Image.Image] | None = None  # if the image is not the file at `path`

    def labelled(self) -> Iterator[tuple[str | None, Sequence[int], float]]:
        """Yield class, corners and score of each box."""
        labels = self.labels or [self.label] * len(self.boxes)
        return zip(labels, self.boxes, self.scores, strict=True)


class VocWriter:
    """Writes Annotations/NAME.xml: pixels are counted from 1, the last one is included."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "Annotations"

    def add(self, image: ImageBoxes) -> None:
        root = ElementTree.Element("annotation")
        width, height = image.size
        _add_elements(root, folder=image.path.parent.name, filename=image.path.name)
        size = ElementTree.SubElement(root, "size")
        _add_elements(size, width=width, height=height, depth=3)
        _add_elements(root, segmented=0)
        for label, (x0, y0, x1, y1), score in image.labelled():
            entry = ElementTree.SubElement(root, "object")
            _add_elements(
                entry, name=label or "object", pose="Unspecified", truncated=0, difficult=0
            )
            box = ElementTree.SubElement(entry, "bndbox")
            _add_elements(box, xmin=x0 + 1, ymin=y0 + 1, xmax=x1, ymax=y1)
            _add_elements(entry, score=f"{score:.4f}")
        ElementTree.indent(root)
        with write_atomically(self.folder / f"{image.name}.xml") as path:
            ElementTree.ElementTree(root).write(path, encoding="utf-8")


class MaskWriter:
    """Writes masks/NAME.png: 255 where an object is, else 0."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "masks"

    def add(self, image: ImageBoxes) -> None:
        union = np.zeros(image.size[::-1], bool)
        for mask in image.masks:
            union |= mask
        with write_atomically(self.folder / f"{image.name}.png") as path:
            about = PngImagePlugin.PngInfo()
            about.add_text("Software", "cenote")
            Image.fromarray(union.astype(np.uint8) * 255).save(path, pnginfo=about)


class CsvWriter:
    """Writes one line per box; an image without boxes has a line without corners."""

    def __init__(self, file: TextIO, folder: Path) -> None:
        self.lines, self.folder = CsvRows(file), folder
        self.lines.write(CSV_HEADER)

    def add(self, image: ImageBoxes) -> None:
        columns = [relative_path(image.path, self.folder), *image.size]
        for label, box, score in image.labelled():
            self.lines.write([*columns, label or "", *box, f"{score:.4f}"])
        if not len(image.boxes):
            self.lines.write([*columns, image.label or "", "", "", "", "", ""])


class CocoWriter:
    """Writes instances with scores; annotations are written at once, the images at the end."""

    def __init__(self, file: TextIO, folder: Path, classes: Sequence[str]) -> None:
        self.file, self.folder = file, folder
        self.numbers = {name: number for number, name in enumerate(classes, 1)}
        self.images: list[dict[str, object]] = []
        self.count = 0
        file.write('{"annotations": [')

    def add(self, image: ImageBoxes) -> None:
        width, height = image.size
        number = len(self.images) + 1
        file_name = relative_path(image.path, self.folder)
        self.images.append({"id": number, "file_name": file_name, "width": width, "height": height})
        for i, (label, (x0, y0, x1, y1), score) in enumerate(image.labelled()):
            entry: dict[str, object] = {
                "id": self.count + 1,
                "image_id": number,
                "category_id": self.numbers[label or "object"],
                "bbox": [int(x0), int(y0), int(x1 - x0), int(y1 - y0)],
                "area": int((x1 - x0) * (y1 - y0)),
                "iscrowd": 0,
                "score": round(float(score), 4),
            }
            if len(image.masks):
                runs = run_lengths(image.masks[i])
                entry["segmentation"] = {"size": [height, width], "counts": runs}
                entry["area"] = int(image.masks[i].sum())
            separator = "," * (self.count > 0)
            self.file.write(f"{separator}\n{json.dumps(entry)}")
            self.count += 1

    def finish(self) -> None:
        categories = [
            {"id": number, "name": name, "supercategory": ""}
            for name, number in self.numbers.items()
        ]
        images = json.dumps(self.images)
        self.file.write(f'],\n"images": {images},\n"categories": {json.dumps(categories)}}}\n')


class YoloWriter:
    """Writes yolo/: copies of the photographs in images/, labels/NAME.txt, lists, data.yaml.

    A line of labels is the number of the class, the centre, width and height of a box, as shares
    of the photograph's size. Every fifth photograph is for validation.
    """

    def __init__(self, folder: Path, classes: Sequence[str]) -> None:
        self.folder = folder / "yolo"
        # Each name once: ImageNet has two cranes.
        self.numbers = {name: number for number, name in enumerate(dict.fromkeys(classes))}
        self.images: list[str] = []
        yaml_file = self.folder / "data.yaml"
        ours = not yaml_file.exists() or is_cenote_file(yaml_file)
        check(ours, f"{yaml_file} was not written by Cenote: choose another output folder")

    def add(self, image: ImageBoxes) -> None:
        width, height = image.size
        lines = []
        for label, (x0, y0, x1, y1), _ in image.labelled():
            centre = (x0 + x1) / 2 / width, (y0 + y1) / 2 / height
            box = *centre, (x1 - x0) / width, (y1 - y0) / height
            numbers = " ".join(f"{value:.6f}" for value in box)
            lines.append(f"{self.numbers[label or 'object']} {numbers}\n")
        write_text(self.folder / "labels" / f"{image.name}.txt", "".join(lines))
        suffix = image.path.suffix
        is_copied = suffix.lower() in YOLO_SUFFIXES and image.path.is_file()
        if not is_copied:
            suffix = ".jpg"
        with write_atomically(self.folder / "images" / f"{image.name}{suffix}") as path:
            if is_copied:
                shutil.copyfile(image.path, path)
            else:
                (image.read or partial(read_image, image.path))().save(path, quality=95)
        self.images.append(f"{image.name}{suffix}")

    def finish(self) -> None:
        earlier = _yolo_images(self.folder)
        val = self.images[1::VALIDATION]  # two photographs are enough for both splits
        train = [name for i, name in enumerate(self.images) if i % VALIDATION != 1]
        for split, images in (("train", train), ("val", val)):
            lines = "".join(f"./images/{name}\n" for name in images)
            write_text(self.folder / f"{split}.txt", lines)
        names = {number: name for name, number in self.numbers.items()}
        description = {"train": "train.txt", "val": "val.txt", "names": names}
        text = yaml.safe_dump(description, sort_keys=False, allow_unicode=True)
        write_text(self.folder / "data.yaml", f"# written by cenote\n{text}")
        _remove_yolo_images(self.folder, earlier.difference(self.images))


class LabelStudioWriter:
    """Writes tasks with predictions; boxes are in percent of the photograph's size.

    Label Studio serves files below its document root, here the working directory.
    """

    def __init__(self, file: TextIO) -> None:
        self.file, self.count = file, 0
        file.write("[")

    def add(self, image: ImageBoxes) -> None:
        width, height = image.size
        results = []
        for number, (label, (x0, y0, x1, y1), score) in enumerate(image.labelled()):
            value = {
                "x": 100 * x0 / width,
                "y": 100 * y0 / height,
                "width": 100 * (x1 - x0) / width,
                "height": 100 * (y1 - y0) / height,
                "rotation": 0,
                "rectanglelabels": [label or "object"],
            }
            results.append(
                {
                    "id": f"box-{number}",
                    "type": "rectanglelabels",
                    "from_name": "label",
                    "to_name": "image",
                    "original_width": width,
                    "original_height": height,
                    "image_rotation": 0,
                    "score": round(float(score), 4),
                    "value": value,
                }
            )
        path = relative_path(image.path, Path()).removeprefix("/")
        if path.startswith("../"):  # outside of the working directory
            path = image.path.absolute().as_posix().removeprefix("/")
        best = max((round(float(score), 4) for score in image.scores), default=0.0)
        task = {
            "predictions": [{"model_version": "cenote", "score": best, "result": results}],
            "data": {"image": f"/data/local-files/?d={quote(path, errors='surrogateescape')}"},
        }
        separator = "," * (self.count > 0)
        self.file.write(f"{separator}\n{json.dumps(task)}")
        self.count += 1

    def finish(self) -> None:
        self.file.write("\n]\n")


BoxWriter = VocWriter | MaskWriter | CsvWriter | CocoWriter | YoloWriter | LabelStudioWriter


@contextmanager
def open_writers(
    folder: Path, formats: Sequence[str], masks: bool = False, classes: Sequence[str] = ("object",)
) -> Iterator[list[BoxWriter]]:
    """Yield writers of these formats; after an error no incomplete file has its final name.

    Paths in boxes.json and boxes.csv are relative to the folder. `classes` are all possible labels.
    """
    for name in formats:
        check(name in FORMATS, f"no format '{name}': {', '.join(FORMATS)}")
    yolo = [YoloWriter(folder, classes)] if "yolo" in formats else []
    folder.mkdir(parents=True, exist_ok=True)
    _remove_unfinished(folder)
    writers: list[BoxWriter] = [*yolo]
    if "voc" in formats:
        writers.append(VocWriter(folder))
    if masks:
        writers.append(MaskWriter(folder))
    with ExitStack() as files:
        if "csv" in formats:
            file = files.enter_context(_open_atomically(folder / "boxes.csv"))
            writers.append(CsvWriter(file, folder))
        if "coco" in formats:
            file = files.enter_context(_open_atomically(folder / "boxes.json"))
            writers.append(CocoWriter(file, folder, classes))
        if "label-studio" in formats:
            file = files.enter_context(_open_atomically(folder / "label-studio.json"))
            writers.append(LabelStudioWriter(file))
        yield writers
        for writer in writers:
            if isinstance(writer, CocoWriter | YoloWriter | LabelStudioWriter):
                writer.finish()


def is_cenote_file(path: Path) -> bool:
    """Whether Cenote wrote this file: others write boxes.csv and masks, too."""
    try:
        with path.open("rb") as file:
            start = file.read(4000)
            return any(mark in start for mark in MARKS[path.suffix])
    except OSError:
        return False


def remove_earlier(folder: Path, kinds: Sequence[str], names: Sequence[str]) -> None:
    """Remove what an earlier run wrote, except the files of these kinds and photographs."""
    patterns = [OUTPUTS[kind] for kind in kinds if kind != "yolo"]
    written = {folder / pattern.format(name) for pattern in patterns for name in names}
    for file in OUTPUTS.values():
        for path in folder.glob(file.format("*")):
            if path not in written and is_cenote_file(path):
                path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            (folder / file).parent.rmdir()
    if "yolo" not in kinds and is_cenote_file(folder / "yolo" / "data.yaml"):
        _remove_yolo_images(folder / "yolo", _yolo_images(folder / "yolo"))
        for name in ("data.yaml", "train.txt", "val.txt"):
            (folder / "yolo" / name).unlink(missing_ok=True)
        for name in ("yolo/images", "yolo/labels", "yolo"):
            with suppress(OSError):  # not empty
                (folder / name).rmdir()


def _yolo_images(folder: Path) -> set[str]:
    """Return the names of the images that an earlier run listed."""
    names = set[str]()
    for split in ("train", "val"):
        with suppress(OSError):
            lines = (folder / f"{split}.txt").read_text(encoding="utf-8").splitlines()
            names.update(line.rpartition("/")[2] for line in lines)
    return names


def _remove_yolo_images(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / "images" / name).unlink(missing_ok=True)
        (folder / "labels" / name).with_suffix(".txt").unlink(missing_ok=True)


def _remove_unfinished(folder: Path) -> None:
    """Remove the temporary files of killed runs, which have the process id in their names."""
    for pattern in (
        ".boxes.*.*",
        ".label-studio.*.*",
        "Annotations/.*.*.xml",
        "masks/.*.*.png",
        "yolo/*/.*.*.*",
    ):
        for path in folder.glob(pattern):
            number = path.name.split(".")[-2]
            if number.isdecimal() and not _is_running(int(number)):
                path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    if os.name != "posix":  # on Windows, os.kill would end the process
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def _open_atomically(path: Path) -> Iterator[TextIO]:
    with (
        write_atomically(path) as temporary,
        temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        yield file


def run_lengths(mask: Mask) -> list[int]:
    """Return the lengths of runs of 0, 1, 0, ... down the columns, as COCO stores a mask."""
    flat = np.concatenate([[False], mask.T.ravel(), [False]])
    ends = np.flatnonzero(flat[1:] != flat[:-1])  # where a run of 1 starts or ends
    if not len(ends) or ends[-1] != mask.size:
        ends = np.append(ends, mask.size)
    return [int(length) for length in np.diff(ends, prepend=0)]


def _add_elements(parent: ElementTree.Element, **children: object) -> None:
    """Add elements; XML allows neither control characters nor undecodable bytes."""
    for name, value in children.items():
        text = "".join(c if c.isprintable() else "?" for c in str(value))
        ElementTree.SubElement(parent, name).text = text


def relative_path(path: Path, folder: Path) -> str:
    """Return the path of a photograph as the files in `folder` contain it."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # another drive
        return path.absolute().as_posix()
