"""Files, folders and globs of photographs, or any data set, as one `Dataset`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from .dataset import Dataset
from .images import find_images
from .lists import SUFFIXES
from .opening import open_dataset
from .packing import pack
from .record import Record


def open_photographs(
    images: Sequence[str], skip: Sequence[Path] = (), on_missing: Callable[[str], None] | None = None
) -> Dataset:
    """A folder is all photographs below it, except in the folders to `skip`; what is no path is a data set's name."""
    if len(images) == 1 and _names_a_dataset(images[0]):
        return open_dataset(images[0])
    hidden = [path.resolve() for path in skip]
    found = find_images(images, on_missing)
    kept = [path for path in found if not any(path.resolve().is_relative_to(folder) for folder in hidden)]
    return pack((Record(str(path)) for path in kept), Path(), "photographs")


def _names_a_dataset(text: str) -> bool:
    path = Path(text).expanduser()
    if path.exists():
        return path.is_file() and path.suffix.lower() in SUFFIXES
    return text.startswith("world/") or (":" in text and len(text.partition(":")[0]) > 1)
