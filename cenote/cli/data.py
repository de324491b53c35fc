"""`cenote data`: inspect a data set."""

from __future__ import annotations

import json as to_json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ._messages import check_output_folder, fail, pluralize

if TYPE_CHECKING:
    from cenote.data import Dataset


def run(
    data: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[DATA]", help_behavior_hint="(required without --list)"),
    ] = "",
    split: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: all)")
    ] = None,
    out: Annotated[
        Path | None, tyro.conf.arg(aliases=["-o"], metavar="FOLDER", help_behavior_hint="")
    ] = None,
    sheet: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
    all: bool = False,
    workers: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: one per core)")
    ] = None,
    errors: bool = False,
    backbone: Annotated[str, tyro.conf.arg(metavar="NAME")] = "lite0",
    list: bool = False,
    json: bool = False,
) -> None:
    """Inspect a data set: counts, splits, sizes, broken and missing files, duplicates, a contact sheet.

    Exit code 1: no image can be read; 2: the data set does not exist.

    Args:
        data: a folder, a list (.csv, .tsv, .txt, .jsonl, .json), NAME:FOLDER of a published data
            set, hf:NAME, world/small.
        split: only this split.
        out: write sheet.jpg and report.json here, and the files of --errors.
        sheet: write the contact sheet to this file: images with boxes, masks and classes.
        all: open every image even if there are more than 20,000.
        workers: processes that open images; 0 opens them in this process.
        errors: rank images whose label is probably wrong, and outliers, by the features of a
            pretrained backbone: errors.csv, outliers.csv and errors.jpg in the folder of --out.
        backbone: the backbone for --errors: a timm model, hf-hub:OWNER/NAME, or lite0, which needs
            no download.
        list: list the published data sets by name, with their folders and where to get them.
        json: print the report as JSON.
    """
    if list:
        _list_benchmarks(json)
        return
    if not data:
        raise ValueError(
            "name a folder, a list or NAME:FOLDER; --list shows the published data sets"
        )
    if errors and out is None:
        raise ValueError("--errors needs a folder for its files: -o FOLDER")
    check_output_folder(out)
    from cenote.data import open_dataset
    from cenote.data.files import write_text
    from cenote.data.inspection import inspect_dataset, report_text

    dataset = open_dataset(data, split)
    report = inspect_dataset(dataset, all, workers)
    as_json = to_json.dumps(report.as_json(), indent=2, ensure_ascii=False)
    print(as_json if json else report_text(report))
    for path in (sheet, out and out / "sheet.jpg"):
        if path and report.readable:
            from cenote.report.dataset_sheet import write_contents

            write_contents(dataset, path, report.good.tolist())
            if not json:
                print(f"\ncontact sheet: {path}")
    if out:
        write_text(out / "report.json", as_json + "\n")
    if not report.readable:
        fail("data", "no image can be read")
    if errors and out:
        sentences = _find_errors(dataset, backbone, out)
        if not json:
            print(f"\n{sentences}")


def _find_errors(dataset: Dataset, backbone: str, folder: Path) -> str:
    """Write the files of --errors; return the result in words."""
    from cenote.data.processes import count_workers
    from cenote.predict.label_errors import OUTLIER, find_label_errors
    from cenote.predict.open_model import open_model
    from cenote.progress import progress_of_total
    from cenote.report.label_errors import write_label_errors

    model, _ = open_model(backbone)
    with progress_of_total("features") as progress:
        images, errors, outliers = find_label_errors(
            model, dataset, count_workers("auto"), progress
        )
    has_sheet = write_label_errors(images, errors, outliers, folder)
    count, likely = round(errors.wrong.sum()), int((errors.wrong > 0.5).sum())
    unusual = pluralize(int((outliers > OUTLIER).sum()), "outlier")
    share = f"{count:,} of {len(images):,} labels ({100 * count / len(images):.1f}%)"
    sentences = f"About {share} are wrong, {likely:,} are more likely wrong than right"
    if not count and not likely:
        sentences = f"None of {len(images):,} labels looks wrong"
    sentences += f", estimated with {backbone}; {unusual}.\n"
    if has_sheet:
        sentences += f"They are shown in {folder / 'errors.jpg'}. "
    return f"{sentences}All are ranked in {folder / 'errors.csv'} and {folder / 'outliers.csv'}."


def _list_benchmarks(json: bool) -> None:
    from cenote.data.benchmarks import benchmarks, describe_benchmarks

    if not json:
        print(describe_benchmarks())
        return
    fields = ("name", "title", "tree", "source")
    rows = [{key: getattr(benchmark, key) for key in fields} for benchmark in benchmarks().values()]
    print(to_json.dumps(rows, indent=2, ensure_ascii=False))
