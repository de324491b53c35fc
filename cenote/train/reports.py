"""Reports of training runs: what a run returns, and writes as results.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from .config import Options
from .log import write_results

Scores = dict[str, float]
OPTIONAL = {"optional": True}  # results.json leaves the field out if it is None


@dataclass(frozen=True, kw_only=True)
class TrainingReport:
    backbone: str
    pool: str
    settings: Options

    def to_json(self) -> Options:
        names = [f.name for f in fields(self) if f.metadata.get("optional")]
        return {k: v for k, v in asdict(self).items() if v is not None or k not in names}

    def write(self, folder: Path) -> None:
        write_results(folder, self.to_json())


@dataclass(frozen=True, kw_only=True)
class RunReport(TrainingReport):
    """The report of one training; `epoch` is the one that validation selected, from 1."""

    epoch: int
    seconds: Scores


@dataclass(frozen=True, kw_only=True)
class FitReport(RunReport):
    """`lr` and `rates` (the best score of each learning rate) are those of a frozen backbone.

    `layers` is the attention to CLS and mean of each layer, if summary tokens are pooled by
    attention: averages over its maps and the validation images, which sum to one.
    """

    lr: float | None = field(default=None, metadata=OPTIONAL)
    val: Scores
    test: Scores | None
    rates: dict[str, float | str] | None = field(default=None, metadata=OPTIONAL)
    layers: dict[str, Scores] | None = field(default=None, metadata=OPTIONAL)
    data: str  # fingerprint of the images


@dataclass(frozen=True, kw_only=True)
class SweepReport(FitReport):
    """The report of the best trial; `trials` counts those that are done, failed and in work."""

    trial: int
    drawn: Scores
    value: float
    trials: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class SelfSupervisedReport(RunReport):
    method: str
    knn: float | None  # accuracy of 10 nearest neighbours, where images have classes
    knn_untrained: float | None
    images: int
    options: Options


@dataclass(frozen=True, kw_only=True)
class MetricReport(RunReport):
    task: str = "metric"
    chosen_by: str
    val: Scores | None
    test: Scores
    classes: dict[str, list[str]]
    options: Options
    data: str


@dataclass(frozen=True, kw_only=True)
class FairReport(TrainingReport):
    """The fair protocol: means over the collections of four models, one of each fold."""

    task: str = "metric"
    protocol: str = "fair"
    test: Scores
    concatenated: Scores
    folds: list[MetricReport]
    classes: dict[str, list[str]]
    fold: str  # the folder of the model that is saved for all
    collections: int | None = field(default=None, metadata=OPTIONAL)
    deviation: dict[str, Scores] | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class ClipReport(RunReport):
    task: str = "clip"
    val: Scores
    test: Scores | None = field(default=None, metadata=OPTIONAL)
    words: int
    texts: int
    identity: str
    data: str
