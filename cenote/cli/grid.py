"""`--grid`, `--runs` and `--screen` of `cenote metric` and `cenote sweep`: train and print."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from cenote.data import Dataset
    from cenote.train.config import RunConfig

GridOption = Annotated[
    tuple[str, ...],
    tyro.conf.arg(metavar="KEY=VALUE,...", help_behavior_hint=""),
]
RunsOption = Annotated[int, tyro.conf.arg(metavar="N")]


def train_grid(
    data: Dataset, out: Path, config: RunConfig, grid: tuple[str, ...], runs: int, screen: bool
) -> None:
    """Train the remaining trials; print the table and the main effects of a screening design."""
    from cenote.train.grid import Design, main_effects, run_grid, selection_metric

    reports = run_grid(data, out, config, Design.parse(grid, runs, screen))
    rows = list(csv.reader((out / "grid.csv").open(newline="")))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    if screen and all(report.mean for report in reports):
        score = selection_metric(config, reports[0].mean)
        for name, effect in main_effects(reports, score).items():
            print(f"effect of {name} on {score}: {effect:+.2f}")
    print(f"saved in {out / 'grid.csv'}")
