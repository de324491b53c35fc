"""The result of a table: our numbers beside the paper's, and a verdict for each claim."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev

from ..data.files import write_text
from ..report.table import align_columns, markdown_table
from .papers import Claim, Item
from .run import Cell

Scores = dict[tuple[str, str], dict[int, float]]  # by row and column: by seed


@dataclass(frozen=True)
class Verdict:
    """`difference` is the mean over the seeds of higher - lower, `paper` that of the paper."""

    says: str
    verdict: str = "not measured"  # or holds, ties, does not hold
    difference: float | None = None
    deviation: float | None = None
    seeds: int = 0
    paper: float | None = None

    @property
    def text(self) -> str:
        details = []
        if self.deviation is not None:
            details.append(f"{self.difference:+.1f} ± {self.deviation:.1f}, {self.seeds} seeds")
        elif self.difference is not None:
            details.append(f"{self.difference:+.1f}, the same for all {self.seeds} seeds")
        if self.paper is not None:
            details.append(f"paper {self.paper:+.1f}")
        return f"{self.says}: {self.verdict}" + f" ({'; '.join(details)})" * bool(details)


def measure(cells: Sequence[Cell]) -> Scores:
    """Return the numbers of the cells that are done."""
    scores: Scores = {}
    for cell in cells:
        number = cell.number()
        if number is not None:
            scores.setdefault((cell.row, cell.column), {})[cell.seed] = number
    return scores


def judge(item: Item, claim: Claim, scores: Scores) -> Verdict:
    """Compare both sides of a claim by a paired t-test over the seeds, at 95%.

    A claim is not measured until all its cells have numbers of at least two seeds, nor if the seed
    changes none of them: copies of one number have no deviation to compare with.
    """
    from scipy.stats import t  # takes half a second

    higher, lower = item.matching(claim.higher), item.matching(claim.lower)
    paper = None
    values = [[item.value(*key) for key in side] for side in (higher, lower)]
    if None not in values[0] + values[1]:
        ours, theirs = ([v for v in side if v is not None] for side in values)
        paper = fmean(ours) - fmean(theirs)
    seeds = set.intersection(*(set(scores.get(key, ())) for key in higher + lower))
    if len(seeds) < 2:
        return Verdict(claim.says, seeds=len(seeds), paper=paper)
    differences = [
        fmean(scores[key][seed] for key in higher) - fmean(scores[key][seed] for key in lower)
        for seed in sorted(seeds)
    ]
    mean, deviation = fmean(differences), stdev(differences)
    if all(len({scores[key][seed] for seed in seeds}) == 1 for key in higher + lower):
        return Verdict(claim.says, difference=mean, seeds=len(seeds), paper=paper)
    margin = float(t.ppf(0.975, len(seeds) - 1)) * deviation / math.sqrt(len(seeds))
    verdict = "ties"
    if mean > margin:
        verdict = "holds"
    if mean < -margin:
        verdict = "does not hold"
    return Verdict(claim.says, verdict, mean, deviation, len(seeds), paper)


def table_rows(item: Item, scores: Scores) -> list[list[str]]:
    """Return the header and the rows: for each column ours and, where it has one, the paper's."""
    printed = {
        column
        for column in item.columns
        if any(item.value(row, column) is not None for row in item.rows)
    }
    header = [item.metric]
    for column in item.columns:
        header += [column, *["paper"] * (column in printed)]
    rows = [header]
    for row in item.rows:
        cells = [row]
        for column in item.columns:
            cells.append(format_scores(list(scores.get((row, column), {}).values())))
            if column in printed:
                value = item.value(row, column)
                cells.append("-" if value is None else f"{value:g}")
        rows.append(cells)
    return rows


def format_scores(values: Sequence[float]) -> str:
    """Return mean ± standard deviation; the number alone if all are equal."""
    if not values:
        return "-"
    deviation = ""
    if len(set(values)) > 1:
        deviation = f" ± {stdev(values):.1f}"
    return f"{fmean(values):.1f}{deviation}"


def write_table(item: Item, scale: str, cells: Sequence[Cell], out: Path) -> str:
    """Write table.md and table.json; return the table as text."""
    scores = measure(cells)
    verdicts = [judge(item, claim, scores) for claim in item.claims]
    header, *rows = table_rows(item, scores)
    seeds = 1 + max((cell.seed for cell in cells), default=-1)
    title = f"{item.names[0]}: {item.shows}; scale {scale}, {seeds} seeds"
    claims = "\n".join(f"- {verdict.text}" for verdict in verdicts)
    page = f"# {title}\n\n{markdown_table(header, rows)}\n\n{claims}\n"
    write_text(out / "table.md", page)
    numbers = [
        {
            "row": row,
            "column": column,
            "scores": list(scores.get((row, column), {}).values()),
            "paper": item.value(row, column),
        }
        for row, column in item.cells
    ]
    content = {"item": item.names[0], "scale": scale, "metric": item.metric, "cells": numbers}
    claimed = [asdict(verdict) for verdict in verdicts]
    write_text(out / "table.json", json.dumps(content | {"claims": claimed}, indent=1))
    return f"{title}\n\n{align_columns([header, *rows])}\n\n{claims}".rstrip()
