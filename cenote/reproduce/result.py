"""The result of a table: our numbers beside the paper's, and a verdict for each claim."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev

from ..data.files import write_text
from ..report.table import align_columns, markdown_table
from .papers import Claim, Item, find_item
from .run import Cell

Scores = dict[tuple[str, str], dict[int, float]]  # by row and column: by seed
SEEDS = 3  # that a claim needs


@dataclass(frozen=True)
class Verdict:
    """`difference` is the mean over the seeds of higher - lower, `paper` that of the paper."""

    says: str
    verdict: str = "not measured"  # or holds, ties, does not hold, not established
    difference: float | None = None
    deviation: float | None = None
    seeds: int = 0
    paper: float | None = None

    @property
    def text(self) -> str:
        details = []
        if self.deviation is not None:
            details.append(f"{self.difference:+.1f} ± {self.deviation:.1f}, {self.seeds} seeds")
        elif self.seeds >= SEEDS:
            details.append(f"{self.difference:+.1f}, the same for all {self.seeds} seeds")
        elif self.difference is not None:
            seeds = f"{self.seeds} seed" + "s" * (self.seeds > 1)
            details.append(f"{self.difference:+.1f}, {seeds} of the {SEEDS} that a claim needs")
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

    A claim is not measured until all its cells have a number of a common seed, and not established
    by fewer than three seeds or by copies of one number, which have no deviation to compare with.
    """
    from scipy.stats import t  # takes half a second

    higher, lower = item.matching(claim.higher), item.matching(claim.lower)
    paper = None
    values = [[item.value(*key) for key in side] for side in (higher, lower)]
    if None not in values[0] + values[1]:
        ours, theirs = ([v for v in side if v is not None] for side in values)
        paper = fmean(ours) - fmean(theirs)
    seeds = set.intersection(*(set(scores.get(key, ())) for key in higher + lower))
    if not seeds:
        return Verdict(claim.says, paper=paper)
    differences = [
        fmean(scores[key][seed] for key in higher) - fmean(scores[key][seed] for key in lower)
        for seed in sorted(seeds)
    ]
    mean = fmean(differences)
    copies = all(len({scores[key][seed] for seed in seeds}) == 1 for key in higher + lower)
    if copies or len(seeds) < SEEDS:
        return Verdict(claim.says, "not established", mean, seeds=len(seeds), paper=paper)
    deviation = stdev(differences)
    margin = float(t.ppf(0.975, len(seeds) - 1)) * deviation / math.sqrt(len(seeds))
    verdict = "ties"
    if mean > margin:
        verdict = "holds"
    if mean < -margin:
        verdict = "does not hold"
    return Verdict(claim.says, verdict, mean, deviation, len(seeds), paper)


def table_rows(item: Item, scores: Scores) -> list[list[str]]:
    """Return the header and the rows: for each column ours and, where it has one, the paper's.

    Quoted rows have only the numbers of the papers.
    """
    printed = {
        column
        for column in item.columns
        if item.quoted or any(item.value(row, column) is not None for row in item.rows)
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
    for row, values in item.quoted.items():
        cells = [row]
        for value in values:
            cells += ["quoted", "-" if value is None else f"{value:g}"]
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


@dataclass(frozen=True)
class TableResult:
    """A table with its numbers: NAME.md and NAME.json of a folder."""

    item: Item
    scale: str
    inputs: dict[str, str]
    scores: Scores = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        return self.item.names[0].replace("/", "-")

    @property
    def title(self) -> str:
        seeds = {seed for numbers in self.scores.values() for seed in numbers}
        count = f"{len(seeds)} seed" + "s" * (len(seeds) != 1)
        return f"{self.item.names[0]}: {self.item.shows}; scale {self.scale}, {count}"

    def claims(self) -> str:
        """Return a Markdown list of the verdicts."""
        verdicts = [judge(self.item, claim, self.scores) for claim in self.item.claims]
        return "\n".join(f"- {verdict.text}" for verdict in verdicts)

    def markdown(self) -> str:
        """Return the table and the verdicts; a dash is a cell that was not measured."""
        header, *rows = table_rows(self.item, self.scores)
        return f"{markdown_table(header, rows)}\n\n{self.claims()}\n"

    def text(self) -> str:
        """Return the table and the verdicts for a terminal."""
        table = align_columns(table_rows(self.item, self.scores))
        return f"{self.title}\n\n{table}\n\n{self.claims()}".rstrip()

    def write(self, out: Path) -> None:
        """Write NAME.md and NAME.json."""
        write_text(out / f"{self.file_name}.md", f"# {self.title}\n\n{self.markdown()}")
        cells = [
            {
                "row": row,
                "column": column,
                "scores": self.scores.get((row, column), {}),
                "paper": self.item.value(row, column),
            }
            for row, column in self.item.cells
        ]
        verdicts = [asdict(judge(self.item, claim, self.scores)) for claim in self.item.claims]
        content = {
            "item": self.item.names[0],
            "scale": self.scale,
            "inputs": self.inputs,
            "metric": self.item.metric,
            "cells": cells,
            "claims": verdicts,
        }
        write_text(out / f"{self.file_name}.json", json.dumps(content, indent=1))


def read_result(path: Path) -> TableResult:
    """Read NAME.json."""
    content = json.loads(path.read_text(encoding="utf-8"))
    scores: Scores = {
        (cell["row"], cell["column"]): {int(seed): x for seed, x in cell["scores"].items()}
        for cell in content["cells"]
    }
    return TableResult(find_item(content["item"]), content["scale"], content["inputs"], scores)
