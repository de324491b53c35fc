"""Files of `cenote data --errors`: two rankings as CSV, and a contact sheet."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..data import Dataset
from ..data.csv_files import write_csv
from ..predict.label_errors import OUTLIER, Floats, LabelErrors
from .sheet import SheetEntry, grouped_sheet, readable, save_picture

SHOWN = 24  # images of each ranking on the contact sheet


def write_label_errors(
    dataset: Dataset, errors: LabelErrors, outliers: Floats, folder: Path
) -> bool:
    """Write errors.csv, outliers.csv, and errors.jpg if there is something to show; return whether.

    Each image of the data set has a class.
    """
    classes, labels = dataset.classes, dataset.labels
    files = [dataset[i].image or f"image {i}" for i in range(len(dataset))]
    by_error, by_distance = errors.ranking(), (-outliers).argsort(kind="stable")
    rows = (
        (files[i], classes[labels[i]], classes[errors.suggested[i]], f"{errors.wrong[i]:.4f}")
        for i in by_error
    )
    _write(folder / "errors.csv", ("file", "label", "suggested", "score"), rows)
    distances = ((files[i], classes[labels[i]], f"{outliers[i]:.2f}") for i in by_distance)
    _write(folder / "outliers.csv", ("file", "label", "score"), distances)
    likely = by_error[errors.wrong[by_error] > 0.5]
    unusual = by_distance[outliers[by_distance] > OUTLIER]
    suspects = [
        SheetEntry(
            [image],
            f"{classes[errors.suggested[i]]}?",
            f"{100 * errors.wrong[i]:.0f}%",
            [f"labelled {classes[labels[i]]}"],
        )
        for i, image in readable(likely[:SHOWN], dataset, int)
    ]
    remote = [
        SheetEntry([image], classes[labels[i]], f"{outliers[i]:.1f}")
        for i, image in readable(unusual[:SHOWN], dataset, int)
    ]
    headings = (
        "Label, suggestion, and the probability that the label is wrong",
        "Outliers: distance to the nearest images, above 3 is unusual",
    )
    sheet = grouped_sheet(dict(zip(headings, (suspects, remote), strict=True)), columns=8)
    if sheet is None:
        (folder / "errors.jpg").unlink(missing_ok=True)  # of an earlier run
        return False
    save_picture(sheet, folder / "errors.jpg")
    return True


def _write(path: Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    with write_csv(path) as table:
        for row in (header, *rows):
            table.write(row)
