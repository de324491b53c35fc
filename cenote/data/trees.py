"""What a folder should hold, and one sentence when it holds something else."""

from __future__ import annotations

import os
from pathlib import Path


class WrongTree(ValueError):
    """A folder that is not laid out as its reader expects."""


def expect(root: Path, what: str, *wanted: str) -> None:
    """Each wanted path must exist below the root; one that ends in "/" must be a folder.

    "a|b" is satisfied by either.
    """
    if not root.is_dir():
        raise WrongTree(
            f"{root} is {'a file' if root.exists() else 'not there'}: {what} is a folder with {_list(wanted)}"
        )
    missing = [
        w for w in wanted if not any(_is_there(root / choice, choice) for choice in w.split("|"))
    ]
    if missing:
        lacking = "" if len(missing) == len(wanted) else f"{_list(missing)} missing, "
        raise WrongTree(
            f"{root} is not {what}: expected {_list(wanted)} in it; {lacking}found {contents(root)}"
        )


def contents(folder: Path, most: int = 8) -> str:
    """The first names in a folder, folders with a slash, for a sentence."""
    with os.scandir(folder) as entries:
        names = sorted(e.name + "/" * e.is_dir() for e in entries if not e.name.startswith("."))
    if not names:
        return "nothing"
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if names[most:] else "")


def _is_there(path: Path, wanted: str) -> bool:
    return path.is_dir() if wanted.endswith("/") else path.is_file()


def _list(wanted: tuple[str, ...] | list[str]) -> str:
    return ", ".join(w.replace("|", " or ") for w in wanted)
