"""What lies in a folder, in the order that torchvision's ImageFolder would have it."""

from __future__ import annotations

import os
from pathlib import Path

from ..images import SUFFIXES
from ..trees import WrongTree, contents


def folders(path: Path) -> list[str]:
    """The names of the folders in one, none if it is not there."""
    if not path.is_dir():
        return []
    with os.scandir(path) as entries:
        return sorted(
            entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()
        )


def images(path: Path) -> list[str]:
    """The names of the images in a folder."""
    with os.scandir(path) as entries:
        names = [entry.name for entry in entries if not entry.name.startswith(".")]
    return sorted(name for name in names if os.path.splitext(name)[1].lower() in SUFFIXES)


def wrong_tree(root: Path, what: str, wanted: str) -> WrongTree:
    """The refusal of a folder whose reader looks for names that it cannot spell out."""
    if not root.is_dir():
        return WrongTree(
            f"{root} is {'a file' if root.exists() else 'not there'}: {what} is a folder with {wanted}"
        )
    return WrongTree(f"{root} is not {what}: expected {wanted}, found {contents(root)}")
