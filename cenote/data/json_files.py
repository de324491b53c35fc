"""Read and check JSON files of published data sets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file; a damaged file is a ValueError that names it."""
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError(f"{path} cannot be read: its JSON is nested too deeply") from None
    except ValueError as error:  # wrong encodings, too
        raise ValueError(f"{path} is not JSON: {error}") from error


def read_entries(path: Path, *keys: str) -> list[Mapping[str, Any]]:
    """Return the list of objects in a JSON file; all must have these keys."""
    return check_entries(path, read_json(path), *keys)


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
