"""Class folders, as torchvision's ImageFolder reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from .checks import LayoutError, list_contents
from .dataset import Dataset, pack
from .images import is_image_name
from .record import SPLITS, Problem, Record
from .table import natural


def read_folders(root: Path, name: str | None = None) -> Dataset:
    """Read class folders with images at any depth, or splits (train/, val/) of class folders.

    Images outside of class folders have no class.
    """
    root = Path(root)
    if not root.is_dir():
        problem = "a file, not a folder" if root.exists() else "missing"
        raise LayoutError(f"{root} is {problem}")
    dataset = pack(_records(root), root, name or root.resolve().name)
    if not len(dataset):
        raise LayoutError(
            f"{root} contains no images: expected class folders with images in them, "
            f"found {list_contents(root)}"
        )
    return dataset


def _records(root: Path) -> Iterator[Record | Problem]:
    folders = [name for name, is_folder in _list(root) if is_folder]
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
    for name, is_folder in _list(root / prefix):
        if not is_folder:
            if is_image_name(name):
                yield Record(prefix + name, None, split)
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


def walk(root: Path, prefix: str, parents: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the images below `root/prefix`, sorted, as paths relative to the root.

    A link to a parent folder is not followed.
    """
    real = os.path.realpath(root / prefix)
    if real in parents:
        return
    for name, is_folder in _list(root / prefix):
        if is_folder:
            yield from walk(root, f"{prefix}{name}/", parents | {real})
        elif is_image_name(name):
            yield prefix + name


def _list(folder: Path) -> list[tuple[str, bool]]:
    with os.scandir(folder) as entries:
        visible = [(e.name, e.is_dir()) for e in entries if not e.name.startswith(".")]
    return sorted(visible, key=lambda entry: natural(entry[0]))
