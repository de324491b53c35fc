"""Files, folders and globs of photographs, or any data set, as one `Dataset`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

from .dataset import Dataset
from .images import find_images
from .lists import SUFFIXES
from .opening import open_dataset
from .packing import pack
from .record import Record
from .write_boxes import HEAD

SHEETS = re.compile(r"(found|discover_.+|contact_sheet.*)\.jpg")


def open_photographs(
    images: Sequence[str],
    skip: Sequence[Path] = (),
    on_missing: Callable[[str], None] | None = None,
) -> Dataset:
    """A folder is all photographs below it, except in the folders to `skip`; what is no path is a data set's name.

    Masks and pictures that an earlier `cenote discover` or `localize` wrote below a folder are no photographs.
    """
    if len(images) == 1 and _names_a_dataset(images[0]):
        return open_dataset(images[0])
    hidden = [path.resolve() for path in skip]
    found = find_images(images, on_missing)
    kept = [
        path
        for path in found
        if not any(path.resolve().is_relative_to(folder) for folder in hidden)
    ]
    tops, has_boxes = (
        [Path(given) for given in images if Path(given).is_dir()],
        cache(cenote_wrote_boxes),
    )
    kept = [path for path in kept if not any(_is_output(path, top, has_boxes) for top in tops)]
    return pack((Record(str(path)) for path in kept), Path(), "photographs")


def _is_output(path: Path, top: Path, has_boxes: Callable[[Path], bool]) -> bool:
    """Of an earlier run. Whoever names a folder of masks itself means it."""
    if not path.is_relative_to(top):
        return False
    between = [folder for folder in path.parents if folder != top and folder.is_relative_to(top)]
    if any(folder.name in ("masks", "pictures") and has_boxes(folder.parent) for folder in between):
        return True
    # Several methods have a folder each, and their sheet lies beside results.json.
    folder = path.parent
    return bool(SHEETS.fullmatch(path.name)) and (
        has_boxes(folder) or (folder / "results.json").is_file()
    )


def cenote_wrote_boxes(folder: Path) -> bool:
    """Whether boxes in it are ours, or were about to be: others, too, keep boxes.csv beside a folder of pictures."""
    begun = (".sightings.jsonl", ".looks.jsonl", ".boxes.*.*")  # of a run that was killed
    if any(any(folder.glob(name)) for name in begun):
        return True
    if _begins(folder / "boxes.csv", ",".join(HEAD)) or _begins(
        folder / "boxes.json", '{"annotations": ['
    ):
        return True
    return any(
        "<score>" in _start(path, 4000)
        for path in islice((folder / "Annotations").glob("*.xml"), 20)
    )


def _begins(path: Path, text: str) -> bool:
    return _start(path, len(text)) == text


def _start(path: Path, length: int) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(length)
    except OSError:
        return ""


def _names_a_dataset(text: str) -> bool:
    path = Path(text).expanduser()
    if path.exists():
        return path.is_file() and path.suffix.lower() in SUFFIXES
    return text.startswith("world/") or (":" in text and len(text.partition(":")[0]) > 1)
