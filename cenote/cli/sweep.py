"""`cenote sweep`: parse, search, print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import tyro

from ._fit_options import FitOptions
from .fit import NAMES


def run(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")],
    trials: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: 30)")
    ] = None,
    search: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="KEY=LOW..HIGH[:log]...", help_behavior_hint="(default: see above)"),
    ] = (),
    options: Annotated[FitOptions, tyro.conf.arg(name="")] = FitOptions(),  # noqa: B008  # frozen
) -> None:
    """Train many times with random settings, keep the best on validation, and test that one once.

    By default lr (1e-5..1, log), weight_decay (1e-7..1e-1, log) and cutout (0..0.5) are drawn, as in "Beyond Global
    Average Pooling"; a recipe says its own. The same command again goes on where it was killed, and may run in several
    processes at once: they share the trials in FOLDER. FOLDER/best is the saved model, trials.csv the table.

    Args:
        data: as for cenote fit.
        out: where the search lies.
        trials: how many, over all processes.
        search: other things to draw, such as lr=1e-4..1e-1:log smoothing=0..0.2.
    """
    from cenote.data import open_dataset
    from cenote.train.engine import Stopped
    from cenote.train.search_space import TRIALS, refuse_fixed, search_space
    from cenote.train.sweep import sweep

    choices, recipe = options.choices(), options.found_recipe()
    space = search_space(search, recipe, choices.freeze)
    refuse_fixed(space, options.given())
    count = (
        trials if trials is not None else recipe.search.get("trials", TRIALS) if recipe else TRIALS
    )
    try:
        report = sweep(open_dataset(data), out, choices, space, count)
    except Stopped as stop:
        print(f"cenote sweep: {stop}", file=sys.stderr)
        raise SystemExit(1) from stop
    _print_table(out / "trials.csv")
    if "trial" not in report:
        return
    by = choices.training().select
    drawn = ", ".join(f"{key} {value:.3g}" for key, value in report["drawn"].items())
    print(
        f"best: trial {report['trial']} ({drawn}), {NAMES.get(by, by)} {report['value']:.2f} on val"
    )
    if report["test"]:
        found = ", ".join(
            f"{NAMES.get(k, k)} {report['test'][k]:.2f}"
            for k in (*NAMES, "accuracy")
            if k in report["test"]
        )
        print(f"on {report['test']['images']} test images: {found}")
    print(f"saved in {out / 'best'}")


def _print_table(path: Path) -> None:
    """Best first."""
    import csv

    head, *rows = csv.reader(path.open(newline=""))
    rows.sort(key=lambda row: -float(row[2]) if row[2] else float("inf"))
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    for row in [head, *rows]:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
