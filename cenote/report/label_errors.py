"""Files of `cenote data --errors`: two rankings as CSV, and a contact sheet."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from ..data import Dataset
from ..data.files import write_atomically
from ..predict.label_errors import Floats, LabelErrors
from .sheet import SheetEntry, grouped_sheet, readable, save_picture

SHOWN = 24  # images of each ranking on the contact sheet


def write_label_errors(
    dataset: Dataset, errors: LabelErrors, outliers: Floats, folder: Path
) -> None:
    """Write errors.csv, outliers.csv and errors.jpg for a data set whose images all have a class."""
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
    suspects = [
        SheetEntry(
            [image],
            f"{classes[errors.suggested[i]]}?",
            f"{100 * errors.wrong[i]:.0f}%",
            [f"labelled {classes[labels[i]]}"],
        )
        for i, image in readable(by_error[:SHOWN], dataset, int)
    ]
    remote = [
        SheetEntry([image], classes[labels[i]], f"{outliers[i]:.1f}")
        for i, image in readable(by_distance[:SHOWN], dataset, int)
    ]
    headings = (
        "Label, suggestion, and the probability that the label is wrong",
        "Outliers: distance to the nearest images, above 3 is unusual",
    )
    sheet = grouped_sheet(dict(zip(headings, (suspects, remote), strict=True)), columns=8)
    if sheet is not None:
        save_picture(sheet, folder / "errors.jpg")


def _write(path: Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    with (
        write_atomically(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        csv.writer(file).writerows([header, *rows])
