"""Class folders: `root/cat/1.jpg`, or `root/train/cat/1.jpg` beside val and test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from .columns import natural
from .dataset import Dataset
from .images import SUFFIXES
from .packing import pack
from .record import SPLITS, Problem, Record
from .trees import WrongTree, contents


def read_folders(root: Path, name: str | None = None) -> Dataset:
    """Each folder is a class, its images at any depth; if all folders are splits, the classes lie inside them.

    Images that lie in no class folder are read without a class.
    """
    root = Path(root)
    if not root.is_dir():
        raise WrongTree(f"{root} is {'a file, not a folder' if root.exists() else 'not there'}")
    dataset = pack(_records(root), root, name or root.resolve().name)
    if not len(dataset):
        raise WrongTree(
            f"{root} holds no images: expected class folders with images in them, found {contents(root)}"
        )
    return dataset


def _records(root: Path) -> Iterator[Record | Problem]:
    folders = [name for name, is_folder in _listed(root) if is_folder]
    splits = [name for name in folders if name.lower() in SPLITS]
    among = {SPLITS[name.lower()] for name in splits}
    if splits and (len(splits) == len(folders) or ("train" in among and len(among) > 1)):
        for name in splits:
            yield from _classes(root, f"{name}/", SPLITS[name.lower()])
        for name in folders:
            if name not in splits:
                yield Problem(f"{root / name}: not a split like {', '.join(splits)}, left out")
    else:
        yield from _classes(root, "", None)


def _classes(root: Path, prefix: str, split: str | None) -> Iterator[Record | Problem]:
    around = frozenset({os.path.realpath(root), os.path.realpath(root / prefix)})
    for name, is_folder in _listed(root / prefix):
        if is_folder:
            images = 0
            try:
                for image in walk(root, f"{prefix}{name}/", around):
                    images += 1
                    yield Record(image, name, split)
            except PermissionError as error:
                yield Problem(f"{error.filename}: this folder may not be read")
                continue
            if not images:
                yield Problem(f"{root / prefix / name}: no images in this class folder")
        elif _is_image(name):
            yield Record(prefix + name, None, split)


def walk(root: Path, prefix: str, inside: frozenset[str] = frozenset()) -> Iterator[str]:
    """Images below `root/prefix`, as paths below the root, sorted; a link into a folder around it is not followed."""
    real = os.path.realpath(root / prefix)
    if real in inside:
        return
    for name, is_folder in _listed(root / prefix):
        if is_folder:
            yield from walk(root, f"{prefix}{name}/", inside | {real})
        elif _is_image(name):
            yield prefix + name


def _listed(folder: Path) -> list[tuple[str, bool]]:
    with os.scandir(folder) as entries:
        visible = [(e.name, e.is_dir()) for e in entries if not e.name.startswith(".")]
    return sorted(visible, key=lambda entry: natural(entry[0]))


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES
