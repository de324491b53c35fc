"""Open any data by a string: a folder, a list, a published data set, a synthetic world."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

from ..options import check_known
from .checks import LayoutError, list_contents
from .dataset import Dataset, pack
from .digests import digest_of
from .images import find_images, images_in_file, list_folder, walk
from .lists import SUFFIXES, read_list
from .record import SPLITS, Problem, Record
from .shards import is_sharded, read_shards
from .video import is_video_name
from .voc import annotation_folder, read_voc
from .write_boxes import is_cenote_file

# Lists that a folder may contain beside its images; "metadata" is Hugging Face's name.
LIST_NAMES = [
    f"{stem}.{suffix}"
    for stem in ("annotations", "metadata")
    for suffix in ("csv", "tsv", "jsonl", "json")
]
YOLO_NAMES = ("data.yaml", "dataset.yaml")
CONTACT_SHEETS = re.compile(r"(found|discover_.+|contact_sheet.*)\.jpg")
# Files of a killed run.
UNFINISHED = (".discover.jsonl", ".localize.jsonl", ".boxes.*.*", ".label-studio.*.*")


def open_dataset(data: str | Path, split: str | None = None) -> Dataset:
    """Open `DATA` as the commands accept it.

    A folder (class folders, or one with annotations.csv, VOC's Annotations/, COCO's annotations/,
    YOLO's data.yaml), a list (.csv, .tsv, .txt, .jsonl, .json), YOLO's .yaml, `NAME:FOLDER` for a
    published data set (`cub:birds/CUB_200_2011`) or `NAME/DOMAIN:FOLDER` for one of its domains,
    `collage:DATA` for collages of the images of any of these, `sample/N:DATA` for N of the images,
    `hf:NAME` for a Hugging Face data set, `wds:PATTERN` for tar shards of webdataset and
    `parquet:PATTERN` for Parquet tables, both on this machine or at any address that fsspec knows,
    or `world/small` and the other synthetic worlds.
    """
    dataset = _open(str(data))
    if split is not None:
        return dataset.split(split)
    return dataset


def check_exists(data: str) -> None:
    """Raise LayoutError unless `data` is a path or a name that `open_dataset` accepts."""
    path = Path(data).expanduser()
    if not (path.is_dir() or path.is_file() or data.startswith("world/") or _has_name(data)):
        raise LayoutError(
            f"{data} does not exist: give a folder, a list, NAME:FOLDER, hf:NAME or world/small"
        )


def _open(data: str) -> Dataset:
    check_exists(data)
    path = Path(data).expanduser()
    if path.is_dir():
        return _open_folder(path)
    if path.is_file():
        if is_video_name(path):
            return open_photographs([data])
        return _open_file(path)
    name, _, argument = data.partition(":")
    if data.startswith("world/"):
        from .synthetic import world

        return world(data)
    if is_sharded(data):
        return read_shards(data)
    if name == "hf" and argument:
        from .huggingface import read_huggingface

        return read_huggingface(argument)
    if name.startswith("sample/") and argument:
        return _sample(_open(argument), name.partition("/")[2])
    if name == "collage" and argument:
        from .collages import make_collages

        return make_collages(_open(argument))
    from .benchmarks import find_benchmark

    name, _, domain = name.partition("/")
    dataset = find_benchmark(name).read(Path(argument).expanduser())
    return _one_domain(dataset, domain) if domain else dataset


def _sample(dataset: Dataset, size: str) -> Dataset:
    """Draw images, each class and split in its share; a larger sample contains a smaller one."""
    if not size.isdecimal() or not int(size):
        raise LayoutError(f"sample/{size}: the size of the sample must be a whole number above 0")
    digests = [digest_of(os.fsencode(record.image)) for record in dataset]
    groups = dict[tuple[str | None, str | None], list[int]]()
    for i in sorted(range(len(dataset)), key=digests.__getitem__):
        groups.setdefault((dataset[i].split, dataset[i].label), []).append(i)
    order = [
        ((rank + 0.5) / len(group), digests[i], i)
        for group in groups.values()
        for rank, i in enumerate(group)
    ]
    return dataset.select(sorted(i for *_, i in sorted(order)[: int(size)]))


def _one_domain(dataset: Dataset, domain: str) -> Dataset:
    check_known("domain", domain, dataset.domains.names)
    chosen = dataset.select(dataset.domains.codes == dataset.domains.names.index(domain))
    chosen.name = f"{dataset.name}/{domain}"
    return chosen


def _has_name(data: str) -> bool:
    """Whether the text is NAME:FOLDER; a single letter is a Windows drive."""
    return data.find(":") > 1


def _open_folder(path: Path) -> Dataset:
    for name in LIST_NAMES:
        if (path / name).is_file():
            return _open_file(path / name)
    instances = sorted((path / "annotations").glob("instances_*.json"))
    if instances:
        from .coco import CocoFile, read_coco_files

        return read_coco_files([CocoFile(file) for file in instances], path.resolve().name)
    if annotation_folder(path) is not None:
        return read_voc(path)
    for name in YOLO_NAMES:
        if (path / name).is_file():
            return _open_file(path / name)
    if (path / "world.json").is_file():
        raise LayoutError(
            f"{path} is an unfinished world: run `cenote world {path}` again with its settings"
        )
    return read_folders(path)


def _open_file(path: Path) -> Dataset:
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        from .yolo import read_yolo

        return read_yolo(path)
    if suffix not in SUFFIXES:
        suffixes = ", ".join(SUFFIXES)
        raise LayoutError(f"{path} is not a list of images: expected {suffixes}, or a folder")
    if suffix == ".json" and _is_coco(path):
        from .coco import read_coco

        return read_coco(path)
    return read_list(path)


def _is_coco(path: Path) -> bool:
    """Whether the JSON file is an object, like COCO's; a list of images is an array."""
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        return file.read(4096).lstrip()[:1] == "{"


def read_folders(root: Path) -> Dataset:
    """Read class folders with images at any depth, or splits (train/, val/) of class folders.

    Images outside of class folders have no class.
    """
    root = Path(root)
    if not root.is_dir():
        raise LayoutError(f"{root} is not a folder")
    dataset = pack(_records(root), root, root.resolve().name)
    if not len(dataset):
        raise LayoutError(
            f"{root} contains no images: expected class folders with images in them, "
            f"found {list_contents(root)}"
        )
    return dataset


def _records(root: Path) -> Iterator[Record | Problem]:
    folders = [name for name, is_folder in list_folder(root) if is_folder]
    splits = [name for name in folders if name.lower() in SPLITS]
    kinds = {SPLITS[name.lower()] for name in splits}
    only_splits = len(splits) == len(folders) or ("train" in kinds and len(kinds) > 1)
    if not splits or not only_splits:
        yield from _class_folders(root, "", None)
        return
    for name in splits:
        yield from _class_folders(root, f"{name}/", SPLITS[name.lower()])
    for name in folders:
        if name not in splits:
            yield Problem(f"{root / name}: not a split like {', '.join(splits)}, skipped")


def _class_folders(root: Path, prefix: str, split: str | None) -> Iterator[Record | Problem]:
    parents = frozenset({os.path.realpath(root), os.path.realpath(root / prefix)})
    for name, is_folder in list_folder(root / prefix):
        if not is_folder:
            for image in images_in_file(prefix + name, root):
                yield Record(image, None, split)
            continue
        images = 0
        try:
            for image in walk(root, f"{prefix}{name}/", parents):
                images += 1
                yield Record(image, name, split)
        except PermissionError as error:
            yield Problem(f"{error.filename}: no permission to read this folder")
            continue
        if not images:
            yield Problem(f"{root / prefix / name}: no images in this class folder")


def open_photographs(
    images: Sequence[str],
    skip: Sequence[Path] = (),
    on_missing: Callable[[str], None] | None = None,
) -> Dataset:
    """Open files, folders and globs of photographs, or one data set by name.

    A folder stands for all photographs below it, except in the folders to `skip`, and except masks
    and pictures that an earlier `cenote discover` or `localize` wrote there.
    """
    if len(images) == 1 and names_a_dataset(images[0]):
        return open_dataset(images[0])
    skipped = [path.resolve() for path in skip]
    roots = [Path(image) for image in images if Path(image).is_dir()]
    has_boxes = cache(has_cenote_boxes)

    def wanted(path: Path) -> bool:
        if any(path.resolve().is_relative_to(folder) for folder in skipped):
            return False
        return not any(_is_output(path, root, has_boxes) for root in roots)

    records = (Record(str(path)) for path in find_images(images, on_missing) if wanted(path))
    return pack(records, Path(), "photographs")


def names_a_dataset(text: str) -> bool:
    """Return whether a text is a list of images, NAME:FOLDER or the name of a synthetic world."""
    path = Path(text).expanduser()
    if path.exists():
        return path.is_file() and path.suffix.lower() in (*SUFFIXES, ".yaml", ".yml")
    return text.startswith("world/") or _has_name(text)


def _is_output(path: Path, root: Path, has_boxes: Callable[[Path], bool]) -> bool:
    """Whether an earlier run wrote this file; a folder of masks given as the root is input."""
    if not path.is_relative_to(root):
        return False
    between = [folder for folder in path.parents if folder != root and folder.is_relative_to(root)]
    if any(
        folder.name in ("masks", "pictures", "yolo") and has_boxes(folder.parent)
        for folder in between
    ):
        return True
    # With several methods, each has a folder and the sheet is beside results.json.
    is_sheet = CONTACT_SHEETS.fullmatch(path.name) is not None
    return is_sheet and (has_boxes(path.parent) or (path.parent / "results.json").is_file())


def has_cenote_boxes(folder: Path) -> bool:
    """Whether a run of Cenote wrote boxes here, or started to: others write boxes.csv, too."""
    if any(any(folder.glob(pattern)) for pattern in UNFINISHED):
        return True
    annotations = islice((folder / "Annotations").glob("*.xml"), 20)
    names = ("boxes.csv", "boxes.json", "label-studio.json", "yolo/data.yaml")
    return any(map(is_cenote_file, [*(folder / name for name in names), *annotations]))
