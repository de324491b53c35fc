"""The check of many architectures, side by side, and its tables."""

from __future__ import annotations

import json
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from ..pooling.catalogue import markdown_table
from .catalogue import checked
from .check import ONE_SIZE, WHEN_MADE, Check, check_backbone

HEADS = (
    "Architecture",
    "Family",
    "Works",
    "Parameters",
    "Channels",
    "Map",
    "CLS",
    "Any size",
    "Note",
)


def survey(names: Sequence[str], values: bool = True, jobs: int = 1) -> Iterator[Check]:
    """Check one after another, or `jobs` at a time, in the order of the names."""
    if jobs <= 1 or len(names) == 1:
        yield from (check_backbone(name, values) for name in names)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _one_thread) as pool:
        yield from pool.map(partial(check_backbone, values=values), names)


def _one_thread() -> None:
    import warnings

    import torch

    warnings.filterwarnings("ignore")  # timm's, about names that are going to change
    torch.set_num_threads(1)


def confirmed(checks: Sequence[Check], earnest: Sequence[Check]) -> list[Check]:
    """Shapes do not see an index out of range: where a family's smallest, run in earnest, takes
    fewer sizes, all do.
    """
    truth = {check.family: check for check in earnest}
    fixed = []
    for check in checks:
        answer = truth.get(check.family, check)
        if check.ok and not answer.any_size and (check.any_size or ONE_SIZE in answer.why):
            reasons = [
                note for note in check.why.split("; ") if note and note not in (ONE_SIZE, WHEN_MADE)
            ]
            size = ONE_SIZE if ONE_SIZE in answer.why else WHEN_MADE
            check = replace(check, any_size=False, why="; ".join([*reasons, size]))
        fixed.append(check)
    return fixed


def summary(checks: Iterable[Check]) -> list[dict[str, Any]]:
    """A row for every family, its smallest architecture in front: what `checked.json` keeps."""
    groups: dict[str, list[Check]] = {}
    for check in checks:
        groups.setdefault(check.family, []).append(check)
    rows = []
    for family, members in sorted(groups.items()):
        members = sorted(members, key=lambda c: (not c.ok, c.parameters, c.name))
        rows.append(
            {
                "family": family,
                "smallest": members[0].name,
                "parameters": members[0].parameters,
                "architectures": len(members),
                "work": sum(c.ok for c in members),
                "cls": sum(c.cls for c in members),
                "cls_removable": sum(c.cls_removable for c in members),
                "any_size": sum(c.any_size for c in members),
                "notes": dict(
                    Counter(note for c in members if c.ok for note in c.why.split("; ") if note)
                ),
                "broken": {c.name: c.why for c in members if not c.ok},
            }
        )
    return rows


def checks_table(checks: Sequence[Check], style: str = "text") -> str:
    """A row for every architecture."""
    if style == "json":
        return json.dumps([asdict(c) for c in checks], indent=2)
    rows = [
        (
            c.name,
            c.family,
            "yes" if c.ok else "no",
            f"{c.parameters / 1e6:.1f}M",
            str(c.dim or ""),
            "x".join(map(str, c.grid)) if c.ok else "",
            ("removable" if c.cls_removable else "stays") if c.cls else "",
            "yes" if c.any_size else "",
            c.why,
        )
        for c in checks
    ]
    works = f"{sum(c.ok for c in checks)} of {len(checks)} architectures work."
    return _table(HEADS, rows, style) + "\n\n" + works


def families_table(style: str = "text") -> str:
    """A row for every family, from the last check of all."""
    results = checked()
    if style == "json":
        return json.dumps(results, indent=2)
    heads = ("Family", "Smallest", "Parameters", "Work", "CLS", "Any size", "Notes")
    rows = []
    for row in results["families"]:
        n = row["architectures"]
        cls = f"{row['cls_removable']} of {row['cls']} removable" if row["cls"] else ""
        notes = [
            text if count == n else f"{text} ({count})" for text, count in row["notes"].items()
        ]
        notes += (
            [f"{len(row['broken'])} not: {next(iter(row['broken'].values()))}"]
            if row["broken"]
            else []
        )
        size = (
            "yes"
            if row["any_size"] == n
            else f"{row['any_size']} of {n}"
            if row["any_size"]
            else "no"
        )
        rows.append(
            (
                row["family"],
                row["smallest"],
                f"{row['parameters'] / 1e6:.1f}M",
                f"{row['work']} of {n}",
                cls,
                size,
                "; ".join(notes),
            )
        )
    return _table(heads, rows, style) + "\n\n" + totals()


def totals() -> str:
    results = checked()
    count = {
        key: sum(row[key] for row in results["families"])
        for key in ("architectures", "work", "cls", "cls_removable", "any_size")
    }
    return (
        f"{count['work']} of {count['architectures']} architectures of timm {results['timm']} work, in "
        f"{sum(row['work'] > 0 for row in results['families'])} of {len(results['families'])} families. "
        f"{count['cls']} have a CLS token, {count['cls_removable']} of them without it too. "
        f"{count['any_size']} take any size at run time."
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], style: str) -> str:
    if style == "markdown":
        return markdown_table(heads, rows)
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    lines = [heads, tuple("-" * w for w in widths), *rows]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
