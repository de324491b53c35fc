"""`cenote reproduce`: list the papers' tables and figures, show one, or make one."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ._messages import report_interrupt
from ._options import Device

if TYPE_CHECKING:
    from cenote.reproduce import Item, TableResult

Name = Annotated[
    str, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]", help_behavior_hint="(default: all)")
]

SHOWN = 6  # commands
INPUT = re.compile(r"[\w-]+")


def run(
    name: Name = "",
    data: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="[INPUT=]DATA...", help_behavior_hint="")
    ] = (),
    out: Annotated[
        Path | None, tyro.conf.arg(aliases=["-o"], metavar="FOLDER", help_behavior_hint="")
    ] = None,
    scale: Literal["tiny", "small", "paper"] = "small",
    seeds: int = 3,
    only: str = "*",
    device: Device = "auto",
    yes: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """List the tables and figures of the five papers; show one, or make it on your images.

    Without -o it prints what the table shows, its commands and the paper's numbers. With -o it runs
    the commands of all cells and writes NAME.md and NAME.json: our numbers beside the paper's, and
    for each claim whether it holds, ties or does not hold (a paired t-test over the seeds), or is
    not established: fewer than three seeds, or a command that gives the same number for all. The
    same command again resumes, and may run in several processes at once: they share FOLDER/runs,
    and so may several tables.

    Args:
        name: a table or a figure, such as simpool/table-10.
        data: the data set that {data} stands for, as for cenote fit, and other inputs by name,
            such as openimages=FOLDER; cells without their input are not measured.
        out: folder of the table.
        scale: tiny checks that everything runs, small is for two cores, paper is as published.
        seeds: repetitions of each cell, for the deviations.
        only: pattern of the cells to run, ROW | COLUMN, such as "GAP*".
        yes: start at the scale of the paper, without which its cost is printed only.
    """
    from cenote.device import use_device
    from cenote.reproduce import TableResult, find_item, list_jobs, make_cells, measure, run_cells
    from cenote.reproduce.cost import count_training_images, describe, estimate

    if not name:
        print(_listing())
        return
    item = find_item(name)
    if out is None:
        if data:
            raise ValueError("--data is for making the table: give its folder, -o FOLDER")
        print(_describe(item, scale))
        return
    if not item.commands:
        raise ValueError(f"{name} is not made of cells: cenote reproduce {name} shows its commands")
    inputs = dict(_named_input(item, text) for text in data)
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    cells = make_cells(item, scale, inputs, seeds, out)
    absent = {key: what for key, what in item.inputs.items() if key not in inputs}
    if not cells:
        needed = ", ".join(f"{key} ({what})" for key, what in absent.items())
        raise ValueError(f"{name} needs --data: {needed}")
    selected = [cell for cell in cells if fnmatch(f"{cell.row} | {cell.column}", only)]
    if not selected:
        first = cells[0]
        raise ValueError(f"--only '{only}' matches no cell: one is '{first.row} | {first.column}'")
    use_device(device)
    result = TableResult(item, scale, inputs)
    _refuse_another(result, out)
    everything = make_cells(item, scale, dict.fromkeys(item.inputs, ""), seeds, out)
    if len(cells) < len(everything):
        share = f"{len(cells) // seeds} of {len(everything) // seeds} cells"
        print(f"{share} can be made; the others need --data for {', '.join(absent)}.")
    datasets = [text for key, text in inputs.items() if key != "words"]  # which is a file
    images = {text: count_training_images(text) for text in datasets}
    missing = [job for job in list_jobs(selected) if not job.done]
    if missing:
        print(describe(estimate(missing, images)))
    if missing and scale == "paper" and not yes:
        print("Add --yes to start.")
        return
    with report_interrupt():
        for _ in run_cells(selected):
            replace(result, scores=measure(cells)).write(out)
    result = replace(result, scores=measure(cells))
    result.write(out)
    print(f"\n{result.text()}\n\n{out}: {result.file_name}.md, {result.file_name}.json")


def _refuse_another(result: TableResult, out: Path) -> None:
    """Raise a ValueError if the folder has this table of other data or at another scale."""
    from cenote.reproduce import read_result

    path = out / f"{result.file_name}.json"
    if not path.exists():
        return
    earlier = read_result(path)
    other = {key for key, text in earlier.inputs.items() if result.inputs.get(key, text) != text}
    if other or earlier.scale != result.scale:
        made_of = " ".join(earlier.inputs.values())
        raise ValueError(f"{path} is of {made_of} at scale {earlier.scale}: choose another -o")


def _named_input(item: Item, text: str) -> tuple[str, str]:
    """Read INPUT=DATA, or DATA for the input `data`."""
    from cenote.options import check_known

    key, equals, value = text.partition("=")
    if not (equals and INPUT.fullmatch(key)):
        return "data", text
    check_known("input", key, item.inputs)
    return key, value


def _listing() -> str:
    from cenote.report.table import align_columns
    from cenote.reproduce import find_item
    from cenote.reproduce.papers import list_items

    rows = [("name", "cells", "what it shows")]
    for item in list_items():
        made = find_item(item.names[0])  # an equal item, if there is one
        cells = "-"
        if made.commands:
            cells = f"{len(made.rows)} x {len(made.columns)}"
        rows += [(name, cells, item.shows) for name in item.names]
    return (
        f"{align_columns(rows, words=(0, 2))}\n\n"
        "cenote reproduce NAME shows its commands and the paper's numbers. With -o FOLDER and --data "
        "it makes a table that has cells; the others are made by the commands that it shows."
    )


def _describe(item: Item, scale: str) -> str:
    """Return what an item shows, its commands and the paper's table."""
    from cenote.report.table import align_columns
    from cenote.reproduce import list_jobs, load_paper, make_cells
    from cenote.reproduce.cost import describe, estimate
    from cenote.reproduce.result import table_rows

    lines = [f"{load_paper(item.paper).title}, {item.title}: {item.shows}"]
    if item.here:
        lines += ["", item.here]
    if item.commands:
        inputs = {key: key.upper() for key in item.inputs}
        cells = make_cells(item, scale, inputs, 1, Path("OUT"))
        jobs = list_jobs(cells)
        lines += ["", align_columns(table_rows(item, {}))]
        lines += ["", *(f"claim: {claim.says}" for claim in item.claims)]
        lines += ["", *(f"{key.upper()}: {what}" for key, what in item.inputs.items())]
        lines += ["", f"commands of a seed at the scale {scale}:"]
        lines += [f"  {job.line}" for job in jobs[:SHOWN]]
        lines += [f"  and {len(jobs) - SHOWN} more"] * (len(jobs) > SHOWN)
        if scale == "paper":
            lines += ["", f"a seed on the paper's images: {describe(estimate(jobs, {}))}"]
        lines += ["", f"all of them: {item.command()}"]
    return "\n".join(lines)
