"""The report of `cenote probe`: a row per backbone, with the columns of the EP benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import compress
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ..data.files import write_text
from ..metrics.intervals import wilson_interval
from .blocks import Page, Table, TableColumn
from .table import Column, align_columns, markdown_table, table_json

KNN, LINEAR, EP, EP_ALL = "k-NN", "LP", "EP", "EP [CLS; patches]"
KNN_OWN, LINEAR_OWN = "k-NN own", "LP own"
HELP = {
    KNN: "nearest training images vote, nothing is trained",
    LINEAR: "linear probing: a linear layer is trained",
    EP: "efficient probing: a linear layer on patches that 32 learned queries pool",
    EP_ALL: "efficient probing of the CLS token and the patches",
    KNN_OWN: "k-NN of the encoder's own pooling, with the weights that it has",
    LINEAR_OWN: "linear probing of the encoder's own pooling, with the weights that it has",
}


@dataclass
class ProbeResult:
    """Accuracies of a probe in percent: one per seed, or one of k-NN, which has no randomness."""

    accuracy: list[float] = field(default_factory=list)  # on the test split
    val: list[float] = field(default_factory=list)
    # On validation: lr, or k and temperature.
    selected: Mapping[str, float | None] = field(default_factory=dict)
    trained: int = 0  # parameters
    failed: str | None = None

    @property
    def mean(self) -> float | None:
        return fmean(self.accuracy) if self.accuracy and self.failed is None else None

    @property
    def deviation(self) -> float | None:
        return stdev(self.accuracy) if len(self.accuracy) > 1 else None

    def __str__(self) -> str:
        if self.mean is None:
            return "failed"
        spread = "" if self.deviation is None else f" ± {self.deviation:.1f}"
        return f"{self.mean:.1f}{spread}"


@dataclass
class BackboneResult:
    """A row: the probes of a backbone by the name of their column."""

    backbone: str
    weights: str | None  # the name of the file, None for the backbone's own
    size: int  # side of the images in pixels
    grid: list[int]
    dim: int
    reads: str  # what k-NN and LP classify: CLS or average
    probes: dict[str, ProbeResult]
    images: dict[str, int]  # of each split
    rates: list[float]  # learning rates that LP and EP tried
    settings: dict[str, Any]
    seconds: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        for name, probe in self.probes.items():
            values["probes"][name] |= {"mean": probe.mean, "deviation": probe.deviation}
        return values


@dataclass
class ProbeReport:
    """Everything that results.json says about a comparison of backbones."""

    data: str
    recipe: str
    classes: int
    seeds: int
    rows: list[BackboneResult]

    @property
    def title(self) -> str:
        plural = "" if self.seeds == 1 else "s"
        return f"{self.data} · frozen backbones · {self.seeds} seed{plural}"

    def to_json(self) -> dict[str, Any]:
        table = table_json(probe_columns(self.rows), self.rows) | {"notes": explanations(self)}
        return vars(self) | {"rows": [row.to_json() for row in self.rows], "table": table}


def probe_columns(rows: Sequence[BackboneResult]) -> list[Column[BackboneResult]]:
    """Declare the table of all outputs. Columns without any value are left out."""
    columns: list[Column[BackboneResult]] = [
        Column("backbone", lambda r: r.backbone, numeric=False),
        Column("weights", lambda r: r.weights, help="file", numeric=False),
        Column("size", lambda r: r.size, help="side of the images in pixels"),
        Column("reads", lambda r: r.reads, help="what k-NN and LP classify", numeric=False),
    ]
    for name, help in HELP.items():
        columns.append(Column(name, partial(_text, name), help=help, missing="-"))
    used = (any(column.value(row) is not None for row in rows) for column in columns)
    return list(compress(columns, used))


def _text(name: str, row: BackboneResult) -> str | None:
    return str(row.probes[name]) if name in row.probes else None


def probe_table(report: ProbeReport, style: str = "text") -> str:
    """Render the table with its notes; `style`: text or markdown."""
    columns = probe_columns(report.rows)
    names = [column.name for column in columns]
    cells = [[column.text(row) for column in columns] for row in report.rows]
    words = [i for i, column in enumerate(columns) if not column.numeric]
    if style == "text":
        return "\n\n".join(
            [report.title, align_columns([names, *cells], words), *explanations(report)]
        )
    table = markdown_table(names, cells, words)
    return "\n\n".join([f"# {report.title}", table, *explanations(report)])


def explanations(report: ProbeReport) -> list[str]:
    """Explain the columns, and how far the numbers can be trusted."""
    probes = {name: probe for row in report.rows for name, probe in row.probes.items()}
    means = [p.mean for row in report.rows for p in row.probes.values() if p.mean is not None]
    notes = [
        f"{row.backbone}: {name} failed: {probe.failed}"
        for row in report.rows
        for name, probe in row.probes.items()
        if probe.failed
    ]
    images, settings = report.rows[0].images, report.rows[0].settings
    trained = "mean ± standard deviation over the seeds" if report.seeds > 1 else "of one seed"
    notes.append(
        f"Accuracy in percent of {images['test']} test images after training on "
        f"{images['train']}; of LP and EP the {trained}. {images['val']} validation images "
        "selected the learning rate and the epoch, and the number of neighbours and the "
        f"temperature of k-NN: never the test images. Settings: cenote recipes {report.recipe}, "
        f"with {settings['epochs']} epochs of batches of {settings['batch']}."
    )
    if means:
        best = max(means)
        low, high = (100 * end for end in wilson_interval(best / 100, images["test"]))
        notes.append(
            "Other images of the same kind could change each accuracy: the best, "
            f"{best:.1f}, is within {low:.1f} and {high:.1f} (95% interval)."
        )
    notes.append(
        "k-NN and LP read the CLS token, or the average of the patches if there is no CLS token or "
        "the encoder pools with attention of its own. EP pools the patches."
        + f" {EP_ALL} is the benchmark's ep_all, which it reports for encoders that were trained "
        "by their CLS token."
        * (EP_ALL in probes)
        + " own: the encoder's own pooling, not trained further." * (LINEAR_OWN in probes)
    )
    return notes


def write_probe(report: ProbeReport, folder: Path) -> list[str]:
    """Write table.txt and table.md; return their names."""
    for name, style in (("table.txt", "text"), ("table.md", "markdown")):
        write_text(folder / name, probe_table(report, style) + "\n")
    return ["table.txt", "table.md"]


def probe_page(report: ProbeReport, command: str = "") -> Page:
    """Return the page of the comparison."""
    columns = probe_columns(report.rows)
    heads = tuple(TableColumn(c.name, c.numeric, c.help) for c in columns)
    cells = tuple(tuple(c.text(row) or None for c in columns) for row in report.rows)
    table = Table("k-NN, linear and efficient probing", heads, cells, tuple(explanations(report)))
    lead = "How well frozen features separate the classes, read in three ways."
    seconds = sum(sum(row.seconds.values()) for row in report.rows)
    return Page(f"Frozen backbones on {report.data}", lead, (table,), command, seconds)
