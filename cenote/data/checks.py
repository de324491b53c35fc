"""Checks of folders, JSON files and arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

MAX_YAML = 1_000_000  # characters
MAX_NAMES = 8  # of a folder's contents in a message


class LayoutError(ValueError):
    """A folder does not have the layout that its reader expects."""


class DamagedFile(ValueError):
    """A file cannot be read. The message contains its path and the reason."""


def check(condition: object, message: str) -> None:
    """Raise a ValueError with this message unless the condition holds."""
    if not condition:
        raise ValueError(message)


@contextmanager
def errors_in(path: Path | str) -> Iterator[None]:
    """Turn every error that a damaged or wrong file causes into a DamagedFile."""
    try:
        yield
    except DamagedFile:
        raise
    except Exception as error:  # decoders raise anything
        reason = " ".join(str(error).split())[:160]
        raise DamagedFile(f"{path} cannot be read: {type(error).__name__} {reason}") from error


def check_layout(root: Path, what: str, *paths: str) -> None:
    """Raise a LayoutError unless all paths exist below the root.

    A path that ends in "/" must be a folder; for "a|b" either is enough.
    """
    expected = ", ".join(paths).replace("|", " or ")
    check_folder(root, what, expected)
    missing = [path for path in paths if not any(_exists(root, p) for p in path.split("|"))]
    if missing:
        names = ", ".join(missing).replace("|", " or ")
        details = f"{names} missing, " * (len(missing) < len(paths))
        raise LayoutError(
            f"{root} is not {what}: expected {expected} in it; {details}found {list_contents(root)}"
        )


def check_folder(root: Path, what: str, expected: str) -> None:
    """Raise a LayoutError unless the root is a folder."""
    if not root.is_dir():
        problem = "a file" if root.exists() else "missing"
        raise LayoutError(f"{root} is {problem}: {what} is a folder with {expected}")


def _exists(root: Path, path: str) -> bool:
    return (root / path).is_dir() if path.endswith("/") else (root / path).is_file()


def list_contents(folder: Path) -> str:
    """Return the first names in a folder, for a message; folders end in a slash."""
    paths = (path for path in folder.iterdir() if not path.name.startswith("."))
    names = sorted(path.name + "/" * path.is_dir() for path in paths)
    if len(names) > MAX_NAMES:
        return f"{', '.join(names[:MAX_NAMES])} and {len(names) - MAX_NAMES} more"
    return ", ".join(names) or "nothing"


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file; a damaged file is a ValueError that names it."""
    with errors_in(path):
        return json.loads(path.read_bytes())


def read_yaml(text: str) -> Any:
    """Return the contents of YAML. PyYAML reads a megabyte a second: longer text is refused."""
    check(len(text) <= MAX_YAML, f"{len(text)} characters of YAML; at most {MAX_YAML} are read")
    return yaml.safe_load(text)


def check_entries(
    path: Path, entries: Any, *keys: str, what: str = "entry"
) -> list[Mapping[str, Any]]:
    """Return `entries` if it is a list of objects with these keys, else raise a ValueError."""
    if not isinstance(entries, list):
        kind = type(entries).__name__
        raise ValueError(f"{path}: expected a list of objects, one per {what}, found {kind}")
    for number, entry in enumerate(entries, 1):
        missing = [k for k in keys if k not in entry] if isinstance(entry, dict) else ["an object"]
        if missing:
            names = ", ".join(missing)
            raise ValueError(f"{path}: {what} {number} lacks {names}: {str(entry)[:80]}")
    return entries
