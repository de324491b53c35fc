"""Check that a folder has the expected layout."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

MAX_NAMES = 8  # shown in a message


class LayoutError(ValueError):
    """A folder does not have the layout that its reader expects."""


def check_layout(root: Path, what: str, *paths: str) -> None:
    """Raise a LayoutError unless all paths exist below the root.

    A path that ends in "/" must be a folder; for "a|b" either is enough.
    """
    expected = _join(paths)
    if not root.is_dir():
        problem = "a file" if root.exists() else "missing"
        raise LayoutError(f"{root} is {problem}: {what} is a folder with {expected}")
    missing = [path for path in paths if not any(_exists(root, p) for p in path.split("|"))]
    if missing:
        details = "" if len(missing) == len(paths) else f"{_join(missing)} missing, "
        raise LayoutError(
            f"{root} is not {what}: expected {expected} in it; {details}found {list_contents(root)}"
        )


def list_contents(folder: Path) -> str:
    """Return the first names in a folder, for a message; folders end in a slash."""
    with os.scandir(folder) as entries:
        names = sorted(e.name + "/" * e.is_dir() for e in entries if not e.name.startswith("."))
    if len(names) > MAX_NAMES:
        return f"{', '.join(names[:MAX_NAMES])} and {len(names) - MAX_NAMES} more"
    return ", ".join(names) or "nothing"


def _exists(root: Path, path: str) -> bool:
    return (root / path).is_dir() if path.endswith("/") else (root / path).is_file()


def _join(paths: Sequence[str]) -> str:
    return ", ".join(path.replace("|", " or ") for path in paths)
