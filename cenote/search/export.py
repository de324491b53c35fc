"""Results of a search as a CSV file, a contact sheet, or a folder with copies of the images."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image

from ..data.csv_files import CsvRows
from ..data.files import temporary_path
from ..data.images import full_size
from ..report.maps import draw_cells
from ..report.retrieval import FOUND_SIDE, FoundImage, found_sheet
from .index import EntryImages
from .maxsim import Box
from .query import SearchAnswer
from .results import RankedImage

DRAWN_SIDE = 2 * FOUND_SIDE  # pixels from which pictures of a contact sheet are made
DRAWN_CELLS = 4  # pairs of cells that are drawn on a re-ranked result


def csv_text(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> str:
    """Return a table with a heading; text that a spreadsheet would run starts with an apostrophe."""
    file = io.StringIO()
    table = CsvRows(file)
    table.write(columns)
    for row in rows:
        table.write(row.get(column) for column in columns)
    # A path need not be text.
    return file.getvalue().encode("utf-8", "replace").decode()


def draw_results(
    answer: SearchAnswer, text: str, query_images: Sequence[Image.Image | None]
) -> Image.Image:
    """Draw the query and the results; cells that match have the same number and colour."""
    images, results = EntryImages(), list[FoundImage]()
    query_cells: list[dict[int, Box]] = [{} for _ in query_images]
    for result in answer.results:
        entry, picture, cells = result.entry, images(result.entry, DRAWN_SIDE), []
        for match in result.cells[:DRAWN_CELLS]:
            number = match.query_cell + 1
            query_cells[match.image][number] = match.query_box
            cells.append((number, match.box))
        if picture is not None:
            picture = draw_cells(picture, (entry.width, entry.height), cells)
        name, duplicates = Path(entry.path).name, len(result.duplicates)
        results.append(FoundImage(picture, name, result.score, duplicates))
    queries = [
        image and draw_cells(image, full_size(image), sorted(cells.items()))
        for image, cells in zip(query_images, query_cells, strict=True)
    ]
    method = answer.method
    if "maxsim" in answer.why:
        method += ", re-ranked: the same number and colour is a match"
    return found_sheet(results, text, queries, method)


def copy_results(results: Sequence[RankedImage], folder: Path) -> int:
    """Copy the images as 01_NAME, 02_NAME, ... to a new folder; return how many were missing.

    The folder has its name only when it is complete. Images that are not files become PNGs.
    """
    digits, images, missing = max(len(str(len(results))), 2), EntryImages(), 0
    folder.parent.mkdir(parents=True, exist_ok=True)
    pending = temporary_path(folder.parent)
    pending.mkdir()
    try:
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
    finally:
        shutil.rmtree(pending, ignore_errors=True)
    return missing
