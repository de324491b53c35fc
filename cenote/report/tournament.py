"""The report of a tournament: its results as dataclasses, and the table and files made of them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any

import numpy as np

from .table import Column, render_markdown, render_text, table_json, used_columns

CandidateMaps = tuple[str, np.ndarray[Any, Any]]  # the kind of map, and (photographs, H, W)
MAP_NAMES = {"pool": "own", "cam": "CAM", "cls": "CLS"}


@dataclass
class CandidateResult:
    """Result of a pool: one value per seed in each list, accuracies in percent."""

    name: str
    pool: str
    tokens: str = "patches"
    options: dict[str, Any] = field(default_factory=dict)
    group: str = ""
    lr: float | None = None
    accuracy: list[float] = field(default_factory=list)  # on the test split if there is one
    val: list[float] = field(default_factory=list)
    boxes: list[float] = field(default_factory=list)  # MaxBoxAccV2
    map: str | None = None  # kind of the map that the boxes are made of: pool, cam, cls
    threshold: float | None = None  # of the best boxes of the first seed
    failed: str | None = None
    paper: float | None = None  # accuracy in the paper
    tie: bool = False  # with the best one
    group_winner: bool = False
    parameters: int = 0  # of the pool
    trained: int = 0  # parameters of the pool and its head
    flops: int = 0  # multiply-adds of the pool for one image
    ms: float | None = None  # of pool and head for one image
    backbone_ms: float | None = None

    @property
    def mean(self) -> float:
        """Mean accuracy; NaN if the candidate failed."""
        return fmean(self.accuracy) if self.accuracy else math.nan

    @property
    def deviation(self) -> float:
        return stdev(self.accuracy) if len(self.accuracy) > 1 else 0.0

    @property
    def gamma(self) -> float | None:
        """SimPool's exponent, unless it is learned."""
        return None if self.options.get("learn_gamma") else self.options.get("gamma")

    def to_json(self) -> dict[str, Any]:
        values = asdict(self) | {"mean": None, "deviation": None}
        if self.accuracy:
            values |= {"mean": self.mean, "deviation": self.deviation}
        if self.ms is None:  # was not measured
            del values["ms"], values["backbone_ms"]
        return values


@dataclass
class TournamentReport:
    """Everything that results.json says about a tournament; `standings` has the best one first."""

    data: str
    backbone: str
    kind: str  # pools, ablation or gamma
    classes: int
    judged: str  # the split that `accuracy` is measured on: test, or val if there is none
    images: int  # of that split
    train_images: int
    box_images: int
    centred_box: float | None  # MaxBoxAccV2 of a fixed box in the middle
    dim: int
    grid: list[int]
    seeds: int
    rates: list[float]
    recommendation: str
    recommended: str | None
    noise: float
    groups: dict[str, str]  # the best of each group
    standings: list[CandidateResult]
    seconds: dict[str, float]
    settings: dict[str, Any]

    @property
    def ranked(self) -> list[CandidateResult]:
        """The results of the candidates that finished, best first."""
        return [result for result in self.standings if result.accuracy]

    @property
    def title(self) -> str:
        plural = "" if self.seeds == 1 else "s"
        return f"{self.data} · {self.backbone}, frozen · {self.seeds} seed{plural}"

    def to_json(self) -> dict[str, Any]:
        """Return the content of results.json; `table` is what the web page shows."""
        standings = [result.to_json() for result in self.standings]
        table = table_json(tournament_columns(self), self.standings)
        return vars(self) | {"standings": standings, "table": table}


def tournament_columns(report: TournamentReport) -> list[Column[CandidateResult]]:
    """Declare the table of all outputs. Columns without any value are left out."""
    places = {result.name: place for place, result in enumerate(report.ranked, 1)}

    columns: list[Column[CandidateResult]] = [
        Column("#", lambda r: places.get(r.name), help="place", missing="-"),
        Column("", _marks, help="= tied with the first, * first of its group", numeric=False),
        Column("candidate", lambda r: r.name, numeric=False),
        Column("group", lambda r: r.group, numeric=False),
        Column(
            "accuracy",
            lambda r: f"{r.mean:.1f} ± {r.deviation:.1f}" if r.accuracy else None,
            help="percent, mean ± standard deviation over the seeds",
            missing="failed",
        ),
        Column("params", lambda r: r.parameters, short_number, "of the pool"),
        Column("trained", lambda r: r.trained, short_number, "parameters of pool and head"),
        Column("MFLOPs", lambda r: r.flops / 1e6, "{:.2f}".format, "multiply-adds of the pool"),
        Column("ms", lambda r: r.ms, "{:.3f}".format, "pool and head, per image"),
        Column(
            "boxes",
            lambda r: fmean(r.boxes) if r.boxes else None,
            "{:.1f}".format,
            help="MaxBoxAccV2 of its map",
            missing="-",
        ),
        Column(
            "map",
            lambda r: r.map and MAP_NAMES[r.map],
            help="the map that the boxes are made of: its own, a CAM or CLS attention",
            numeric=False,
        ),
        Column("lr", lambda r: r.lr, "{:g}".format, "learning rate, selected on validation"),
        Column("paper", lambda r: r.paper, "{:.1f}".format, "accuracy in the paper"),
    ]
    return used_columns(columns, report.standings)


def tournament_table(report: TournamentReport, style: str = "text") -> str:
    """Render the table with notes and the recommendation; `style`: text or markdown."""
    columns = tournament_columns(report)
    winners = ", ".join(f"{group}: {name}" for group, name in report.groups.items())
    notes = [
        "\n".join(failures(report)),
        f"Winners of the groups: {winners}.",
        "\n".join(explanations(report)),
    ]
    notes = [note for note in notes if note]
    if style == "text":
        table = render_text(columns, report.standings)
        return "\n\n".join([report.title, table, *notes, report.recommendation])
    table = render_markdown(columns, report.standings)
    lines = [note.replace("\n", "  \n") for note in notes]
    return "\n\n".join([f"# {report.title}", f"**{report.recommendation}**", table, *lines])


def failures(report: TournamentReport) -> list[str]:
    return [
        f"{result.name} failed: {result.failed}" for result in report.standings if result.failed
    ]


def explanations(report: TournamentReport) -> list[str]:
    """Explain the columns, and how far the numbers can be trusted."""
    best = max((result.mean for result in report.ranked), default=0.0) / 100
    # Half of a 95% confidence interval of a binomial, in percent.
    sampling = 196 * math.sqrt(max(best * (1 - best), 0) / report.images)
    notes = [
        f"Accuracy: percent of {report.images} {report.judged} images after training on "
        f"{report.train_images}, mean ± standard deviation over the seeds. "
        f"=: tied with the first (differences up to {report.noise:.1f} are noise). "
        "*: first of its group.",
        f"Other images of the same kind could change each accuracy by about {sampling:.1f}, "
        "for all pools alike.",
    ]
    if report.judged == "val":
        notes.append(
            "There is no test split: these are the validation images that also selected epoch and "
            "learning rate, so all accuracies are slightly too high."
        )
    cost = (
        "params: of the pool; trained: with its head; MFLOPs: multiply-adds of the pool; "
        "ms: pool and head, per image."
    )
    timed = next((r for r in report.standings if r.backbone_ms is not None), None)
    if timed is not None:
        cost += f" The backbone takes {timed.backbone_ms:.1f} ms per image."
    notes.append(cost)
    if report.box_images:
        notes.append(
            f"boxes: MaxBoxAccV2 on {report.box_images} uncropped images, of the pool's own map, "
            "else of the class activation map (CAM) of the true class, or of the CLS attention, at "
            "the best threshold for these images. A fixed box in the middle has "
            f"{report.centred_box:.1f}."
        )
    if report.kind == "ablation":
        notes.append(
            "paper: [SimPool Table 10], ResNet-18 trained from scratch on 20% of ImageNet. Here "
            "the backbone is frozen: the rows are the same, but not the experiment."
        )
    if report.kind == "gamma":
        notes.append(
            "paper: [SimPool App. C.4], ResNet-18 trained from scratch. Its third row, a learned "
            "gamma with a tenth of the learning rate (56.5), is left out: a candidate has one "
            "learning rate."
        )
    return notes


def short_number(number: int) -> str:
    """1234567 -> 1.2M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{letter}"
    return str(number)


def _marks(result: CandidateResult) -> str:
    tie = "=" if result.tie else ""
    return f"{tie}*" if result.group_winner else tie
