"""JSON of published sets: damage gets one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_json(path: Path) -> Any:
    """Whatever is in the file."""
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError(f"{path} is not JSON that can be read: nested too deeply") from None
    except ValueError as error:  # also wrong encodings
        raise ValueError(f"{path} is not JSON: {error}") from error


def read_entries(path: Path, *keys: str) -> list[Mapping[str, Any]]:
    """A list of objects that all have these keys."""
    return checked_entries(path, read_json(path), *keys)


def checked_entries(
    path: Path, entries: Any, *keys: str, what: str = "entry"
) -> list[Mapping[str, Any]]:
    """The same of a part of a file; `what` names it in the sentence."""
    if not isinstance(entries, list):
        raise ValueError(
            f"{path}: expected a list of objects, one for each {what}, found {type(entries).__name__}"
        )
    for number, entry in enumerate(entries, 1):
        missing = [k for k in keys if k not in entry] if isinstance(entry, dict) else ["an object"]
        if missing:
            raise ValueError(
                f"{path}: {what} {number} lacks {', '.join(missing)}: {str(entry)[:80]}"
            )
    return entries
