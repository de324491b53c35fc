"""Reports of training runs: what a run returns, and writes as results.json."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from .config import Options
from .log import write_results

Report = TypeVar("Report")
Scores = dict[str, float]
OPTIONAL = {"optional": True}  # results.json leaves the field out if it is None


@dataclass(frozen=True, kw_only=True)
class FitReport:
    """`lr` and `rates` (the best score of each learning rate) are those of a frozen backbone."""

    pool: str
    backbone: str
    lr: float | None = field(default=None, metadata=OPTIONAL)
    epoch: int
    val: Scores
    test: Scores | None
    rates: dict[str, float | str] | None = field(default=None, metadata=OPTIONAL)
    seconds: Scores
    settings: Options
    data: str  # fingerprint of the images


@dataclass(frozen=True, kw_only=True)
class SweepReport(FitReport):
    """The report of the best trial; `trials` counts those that are done, failed and in work."""

    trial: int
    drawn: Scores
    value: float
    trials: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class SelfSupervisedReport:
    method: str
    backbone: str
    pool: str
    epoch: int
    knn: float | None  # accuracy of 10 nearest neighbours, where images have classes
    knn_untrained: float | None
    images: int
    options: Options
    seconds: Scores
    settings: Options


@dataclass(frozen=True, kw_only=True)
class MetricReport:
    task: str = "metric"
    backbone: str
    pool: str
    epoch: int
    chosen_by: str
    val: Scores | None
    test: Scores
    classes: dict[str, list[str]]
    options: Options
    seconds: Scores
    settings: Options
    data: str


@dataclass(frozen=True, kw_only=True)
class FairReport:
    """The fair protocol: means over the collections of four models, one of each fold."""

    task: str = "metric"
    protocol: str = "fair"
    backbone: str
    pool: str
    test: Scores
    concatenated: Scores
    folds: list[MetricReport]
    classes: dict[str, list[str]]
    settings: Options
    fold: str  # the folder of the model that is saved for all
    collections: int | None = field(default=None, metadata=OPTIONAL)
    deviation: dict[str, Scores] | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class ClipReport:
    task: str = "clip"
    backbone: str
    pool: str
    epoch: int
    val: Scores
    test: Scores | None = field(default=None, metadata=OPTIONAL)
    words: int
    texts: int
    identity: str
    seconds: Scores
    settings: Options
    data: str


def to_json(report: Any) -> Options:
    """Return a report as plain values; optional fields that are None are left out."""
    names = [f.name for f in dataclasses.fields(report) if f.metadata.get("optional")]
    content = dataclasses.asdict(report)
    return {k: v for k, v in content.items() if v is not None or k not in names}


def from_json(kind: type[Report], content: Options) -> Report:
    """Return the report that `to_json` wrote."""
    names = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in content.items() if key in names})


def write_report(folder: Path, report: Any) -> None:
    """Write a report to results.json."""
    write_results(folder, to_json(report))
