"""Results of a search as a CSV file, or as a folder with copies of the images."""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from .index import EntryImages
from .query import RankedImage

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of a formula in a spreadsheet


def csv_text(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> str:
    """Return a table with a heading; text that a spreadsheet would run starts with an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(column)) for column in columns])
    # A path need not be text.
    return file.getvalue().encode("utf-8", "replace").decode()


def _cell(value: object) -> object:
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value


def copy_results(results: Sequence[RankedImage], folder: Path) -> int:
    """Copy the images as 01_NAME, 02_NAME, ... to a new folder; return how many were missing.

    The folder has its name only when it is complete. Images that are not files become PNGs.
    """
    digits, images, missing = max(len(str(len(results))), 2), EntryImages(), 0
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        pending = Path(temporary) / folder.name
        pending.mkdir()
        for rank, result in enumerate(results, 1):
            entry = result.entry
            try:
                if entry.time:  # a file
                    shutil.copy2(entry.path, pending / f"{rank:0{digits}d}_{Path(entry.path).name}")
                    continue
                image = images(entry)
            except (OSError, ValueError):  # it was removed, or cannot be read
                image = None
            if image is None:
                missing += 1
                continue
            name = entry.path.replace(":", "/").rpartition("/")[2]
            image.save((pending / f"{rank:0{digits}d}_{name}").with_suffix(".png"))
        os.replace(pending, folder)
    return missing
