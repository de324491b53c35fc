"""The report of a tournament: its results as dataclasses, and the table, files and page of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import compress
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from PIL import Image

from ..data import Dataset, write_atomically
from ..data.files import write_text
from ..metrics.arrays import Array
from ..metrics.intervals import wilson_interval
from .blocks import (
    Bar,
    Bars,
    Block,
    Maps,
    MapTile,
    Page,
    PhotoWithMaps,
    Point,
    Scatter,
    Table,
    TableColumn,
    map_values,
    picture_of,
    positive,
)
from .maps import overlay
from .plots import draw_scatter
from .sheet import SheetEntry, contact_sheet, readable, save_picture
from .table import Column, align_columns, markdown_table, short_number, table_json

CandidateMaps = tuple[str, np.ndarray[Any, Any]]  # the kind of map, and (photographs, H, W)
MAP_NAMES = {"pool": "own", "cam": "CAM", "cls": "CLS"}
MAP_KINDS = {"pool": "own map", "cam": "CAM", "cls": "CLS attention"}
BOX_SOURCES = {
    "pool": "from the pool's own map",
    "cam": "from the CAM of the true class",
    "cls": "from CLS attention",
}
MAX_MAPS = 12  # candidates whose maps are on the page
MAX_LEADING = 3  # photographs with the map of the recommended candidate, above the table
TILE = 132  # pixels of a picture in pictures.jpg


@dataclass
class CandidateResult:
    """Result of a pool: one value per seed in each list, accuracies in percent."""

    name: str
    pool: str
    tokens: str = "patches"
    options: dict[str, Any] = field(default_factory=dict)
    group: str = ""
    lr: float | None = None
    pool_lr_factor: float | None = None  # of the learning rate, for the matrices of the pool
    accuracy: list[float] = field(default_factory=list)  # on the test split if there is one
    val: list[float] = field(default_factory=list)
    knn: float | None = None  # accuracy of nearest neighbours; if nothing of the pool is trained
    boxes: list[float] = field(default_factory=list)  # MaxBoxAccV2
    map: str | None = None  # kind of the map that the boxes are made of: pool, cam, cls
    map_size: int | None = None  # side of the images for it, chosen with the first seed
    threshold: float | None = None  # of the best boxes of the first seed
    failed: str | None = None
    paper: float | None = None  # accuracy in the paper
    behind: float | None = None  # points behind the first
    margin: float | None = None  # up to which the difference is a tie
    tie: bool = False  # with the best one
    group_winner: bool = False
    parameters: int = 0  # of the pool
    trained: int = 0  # parameters of the pool and its head
    flops: int = 0  # multiply-adds of the pool for one image
    ms: float | None = None  # of pool and head for one image
    backbone_ms: float | None = None
    # One array per seed, whose means are `accuracy` and `boxes`: (images,); not in results.json.
    outcomes: list[Array] = field(default_factory=list, repr=False)
    box_outcomes: list[Array] = field(default_factory=list, repr=False)

    @property
    def finished(self) -> bool:
        """Whether every seed was trained."""
        return bool(self.accuracy) and self.failed is None

    @property
    def mean(self) -> float:
        """Mean accuracy; NaN if the candidate failed."""
        return fmean(self.accuracy) if self.finished else math.nan

    @property
    def deviation(self) -> float:
        return stdev(self.accuracy) if len(self.accuracy) > 1 else 0.0

    @property
    def gamma(self) -> float | None:
        """SimPool's exponent, unless it is learned."""
        return None if self.options.get("learn_gamma") else self.options.get("gamma")

    def to_json(self) -> dict[str, Any]:
        values = asdict(replace(self, outcomes=[], box_outcomes=[]))
        del values["outcomes"], values["box_outcomes"]
        values |= {"mean": None, "deviation": None}
        if self.finished:
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
    map_images: int  # with boxes, on which the sizes of images for maps were chosen
    centred_box: float | None  # MaxBoxAccV2 of a fixed box in the middle
    dim: int
    grid: list[int]
    seeds: int
    rates: list[float]
    standings: list[CandidateResult]
    seconds: dict[str, float]
    settings: dict[str, Any]
    metric: str = "accuracy"  # or mAP, of images with several classes; in percent
    recipe: str | None = None  # of networks that were trained end to end; None: a frozen backbone
    # What `cenote.train.tournament.ranking.conclude` adds.
    recommendation: str = ""
    recommended: str | None = None
    groups: dict[str, str] = field(default_factory=dict)  # the best of each group

    @property
    def ranked(self) -> list[CandidateResult]:
        """The results of the candidates that finished, best first."""
        return [result for result in self.standings if result.finished]

    @property
    def title(self) -> str:
        plural = "" if self.seeds == 1 else "s"
        return f"{self.data} · {self.network} · {self.seeds} seed{plural}"

    @property
    def network(self) -> str:
        training = "frozen" if self.recipe is None else "trained end to end"
        return f"{self.backbone}, {training}"

    def to_json(self) -> dict[str, Any]:
        """Return the content of results.json; `table` is what the web page shows."""
        standings = [result.to_json() for result in self.standings]
        table = table_json(tournament_columns(self), self.standings)
        notes = [*failures(self), *explanations(self)]
        return vars(self) | {"standings": standings, "table": table | {"notes": notes}}


def tournament_columns(report: TournamentReport) -> list[Column[CandidateResult]]:
    """Declare the table of all outputs. Columns without any value are left out."""
    places = {result.name: place for place, result in enumerate(report.ranked, 1)}
    trained = "parameters of pool and head" if report.recipe is None else "parameters in all"
    columns: list[Column[CandidateResult]] = [
        Column("#", lambda r: places.get(r.name), help="place", missing="-"),
        Column("", _marks, help="= tied with the first, * first of its group", numeric=False),
        Column("candidate", lambda r: r.name, numeric=False),
        Column("group", lambda r: r.group, numeric=False),
        Column(
            report.metric,
            lambda r: f"{r.mean:.1f} ± {r.deviation:.1f}" if r.finished else None,
            help="percent, mean ± standard deviation over the seeds",
            missing="failed",
        ),
        Column(
            "behind",
            lambda r: f"{r.behind:.1f} ± {r.margin:.1f}" if r.behind else None,
            help="points behind the first ± what other images and seeds may change",
        ),
        Column(
            "k-NN",
            lambda r: r.knn,
            "{:.1f}".format,
            help="accuracy of the 20 nearest training images, nothing trained",
        ),
        Column("params", lambda r: r.parameters, short_number, "of the pool"),
        Column("trained", lambda r: r.trained, short_number, trained),
        Column("MFLOPs", lambda r: r.flops / 1e6, "{:.2f}".format, "multiply-adds of the pool"),
        Column("ms", lambda r: r.ms, "{:.3f}".format, "pool and head, per image"),
        Column(
            "boxes",
            lambda r: fmean(r.boxes) if r.boxes and r.finished else None,
            "{:.1f}".format,
            help="MaxBoxAccV2 of its map",
            missing="-",
        ),
        Column(
            "map",
            lambda r: f"{MAP_NAMES[r.map]} {r.map_size}" if r.map and r.boxes else None,
            help="the map of the boxes, its own, a CAM or CLS attention, and the size of images",
            numeric=False,
        ),
        Column("lr", lambda r: r.lr, "{:g}".format, "learning rate, selected on validation"),
        Column(
            "pool lr",
            lambda r: r.pool_lr_factor,
            "x{:g}".format,
            "factor of the learning rate for the matrices of the pool, selected on validation",
        ),
        Column("paper", lambda r: r.paper, "{:.1f}".format, "accuracy in the paper"),
    ]
    used = (any(column.value(r) is not None for r in report.standings) for column in columns)
    return list(compress(columns, used))


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
    names = [column.name for column in columns]
    rows = [[column.text(result) for column in columns] for result in report.standings]
    words = [i for i, column in enumerate(columns) if not column.numeric]
    if style == "text":
        table = align_columns([names, *rows], words)
        return "\n\n".join([report.title, table, *notes, report.recommendation])
    table = markdown_table(names, rows, words)
    lines = [note.replace("\n", "  \n") for note in notes]
    return "\n\n".join([f"# {report.title}", f"**{report.recommendation}**", table, *lines])


def failures(report: TournamentReport) -> list[str]:
    return [
        f"{result.name} failed: {result.failed}" for result in report.standings if result.failed
    ]


def explanations(report: TournamentReport) -> list[str]:
    """Explain the columns, and how far the numbers can be trusted."""
    best = max((result.mean for result in report.ranked), default=0.0)
    low, high = (100 * end for end in wilson_interval(best / 100, report.images))
    metric, interval = "Accuracy: percent of", []
    unit = "image by image"
    if report.metric == "mAP":
        metric = "mAP: mean average precision of the classes, in percent, on"
        unit = "class by class"
    else:
        interval = [
            "Other images of the same kind could change each accuracy, for all pools alike: the "
            f"best, {best:.1f}, is within {low:.1f} and {high:.1f} (95% interval)."
        ]
    notes = [
        f"{metric} {report.images} {report.judged} images after training on "
        f"{report.train_images}, mean ± standard deviation over the seeds. "
        "=: tied with the first: other images and seeds could reverse the order (behind: points "
        f"behind the first ± a 95% interval, compared {unit}, for all pools together). "
        "*: first of its group.",
        *interval,
    ]
    frozen = report.recipe is None
    if not frozen:
        settings = [f"{name} {report.settings[name]:g}" for name in ("epochs", "batch", "lr")]
        notes.append(
            f"Backbone, pool and head were trained together with the recipe {report.recipe}, every "
            f"pool with the same settings: {', '.join(settings)}."
        )
    if report.judged == "val":
        selected = "epoch and learning rate" if frozen else "the epoch"
        notes.append(
            f"Without a test split, these are the validation images that also selected "
            f"{selected}, so all these numbers are slightly too high."
        )
    cost = "params: of the pool; trained: with its head; MFLOPs: multiply-adds of the pool."
    if not frozen:
        cost = cost.replace("with its head", "all of the network")
    timed = next((r for r in report.standings if r.backbone_ms is not None), None)
    if timed is not None:
        cost += (
            " ms: pool and head, per image. "
            f"The backbone takes {timed.backbone_ms:.1f} ms per image."
        )
    notes.append(cost)
    if any(result.knn is not None for result in report.standings):
        notes.append(
            "k-NN: the 20 nearest training images vote, by cosine; only for pools of which nothing "
            "but an exponent could be trained, at its first value."
        )
    if report.box_images:
        choice = "The pool's own map at twice the training size, or else a CAM at the training size"
        if report.map_images:
            choice = (
                "The map and the size of the images, that of training or twice that, are those "
                f"with the best boxes on {report.map_images} "
                f"{'validation' if report.judged == 'test' else 'of these'} images"
            )
        notes.append(
            f"boxes: MaxBoxAccV2 on {report.box_images} uncropped images, at the best threshold "
            "for these images. map: the pool's own, the class activation map (CAM) of the true "
            f"class, or the CLS attention. {choice}. "
            f"A fixed box in the middle has {report.centred_box:.1f}."
        )
    papers = {
        "ablation": (
            "paper: [SimPool Table 10], ResNet-18 trained from scratch on 20% of ImageNet. layers "
            "have weights of their own and iterations share them: the names of the table's rows; "
            "a sentence of the paper has it the other way round."
        ),
        "gamma": "paper: [SimPool App. C.4], ResNet-18 trained from scratch.",
    }
    if note := papers.get(report.kind):
        if frozen:
            note += " Here the backbone is frozen: the rows are the same, but not the experiment."
        notes.append(note)
    return notes


def _marks(result: CandidateResult) -> str:
    tie = "=" if result.tie else ""
    return f"{tie}*" if result.group_winner else tie


def write_tournament(
    report: TournamentReport, folder: Path, photos: Dataset, maps: Mapping[str, CandidateMaps]
) -> list[str]:
    """Write table.txt, table.md, plot.png, plot.svg and pictures.jpg; return the written names."""
    tables = {
        "table.txt": tournament_table(report),
        "table.md": tournament_table(report, "markdown"),
    }
    for name, text in tables.items():
        write_text(folder / name, text + "\n")
    names = list(tables)
    if report.ranked:
        figure = draw_scatter(accuracy_plot(report), report.title)
        for name in ("plot.png", "plot.svg"):
            with write_atomically(folder / name) as temporary:
                figure.savefig(temporary, dpi=150)
            names.append(name)
    pictures = draw_pictures(report, photos, maps)
    if pictures is not None:
        save_picture(pictures, folder / "pictures.jpg")
        names.append("pictures.jpg")
    return names


def accuracy_plot(report: TournamentReport) -> Scatter:
    """Return accuracy against parameters [SimPool Fig. 3], or against gamma."""
    y_label = f"{report.metric} on {report.images} {report.judged} images (%)"
    note, by_gamma = "Lines are standard deviations over the seeds", report.kind == "gamma"
    metric = "mAP" if report.metric == "mAP" else "Accuracy"
    title, x_label = f"{metric} against parameters", "trained parameters (pool and head)"
    if report.recipe is not None:
        x_label = "parameters of the network"
    if by_gamma:
        title, x_label = f"{metric} against γ", "exponent γ"
    else:
        note += "; stars are winners of their groups"
    points, order = [], list(report.groups)  # a group has the same colour in every tournament
    for r in sorted(report.ranked, key=lambda r: order.index(r.group)):
        x = r.gamma if by_gamma else float(r.trained)
        best = r.group_winner and not by_gamma
        points.append(Point(r.name, x, r.mean, r.deviation, r.group, best))
    notes = (f"{note}.",)
    return Scatter(title, x_label, y_label, tuple(points), not by_gamma, notes, max_y=100.0)


def draw_pictures(
    report: TournamentReport, photos: Dataset, maps: Mapping[str, CandidateMaps]
) -> Image.Image | None:
    """Draw the maps of all candidates on the same photographs; None without maps or photographs."""
    images = readable(range(len(photos)), photos, lambda i: i)
    if not images or not any(result.name in maps for result in report.ranked):
        return None
    # As the backbone saw them: uncropped and squeezed to a square.
    squares = {i: photo.resize((TILE, TILE), Image.Resampling.LANCZOS) for i, photo in images}
    entries = [SheetEntry(list(squares.values()), "photographs")]
    for result in report.ranked:
        pictures = [Image.new("RGB", (TILE, TILE), (238, 236, 231))] * len(squares)
        if result.name in maps:
            values = np.nan_to_num(maps[result.name][1])
            pictures = [overlay(square, positive(values[i])) for i, square in squares.items()]
        entries.append(SheetEntry(pictures, result.name, _map_note(result, maps)))
    heading = f"{report.data} · {report.network} · maps for the true class, the best first"
    return contact_sheet(entries, heading, columns=2, side=TILE)


def _map_note(result: CandidateResult, maps: Mapping[str, CandidateMaps]) -> str:
    kind, _ = maps.get(result.name, ("", None))
    return f"{result.mean:.1f}% · {MAP_KINDS.get(kind, 'no map')}"


def tournament_page(
    report: TournamentReport,
    photos: Dataset,
    maps: Mapping[str, CandidateMaps],
    command: str = "",
    seconds: float | None = None,
) -> Page:
    """Return the page of a tournament; the arguments are those of `write_tournament`."""
    recommended = [i for i, r in enumerate(report.standings) if r.name == report.recommended]
    notes = [*failures(report), *explanations(report)]
    if recommended:
        notes.insert(0, "In bold: the recommended one.")
    columns = tournament_columns(report)
    heads = tuple(TableColumn(c.name, c.numeric, c.help) for c in columns)
    cells = tuple(tuple(c.text(result) or None for c in columns) for result in report.standings)
    blocks = [
        *_leading_blocks(report, photos, maps),
        Table("Standings", heads, cells, tuple(notes), tuple(recommended)),
    ]
    if report.ranked:
        blocks.append(accuracy_plot(report))
    blocks += [*_maps_blocks(report, photos, maps), *_box_blocks(report)]
    lead = f"{report.recommendation} The backbone, {report.backbone}, is frozen."
    if report.recipe is not None:
        lead = f"{report.recommendation} Every network, {report.backbone}, was trained end to end."
    title = f"Which pooling suits {report.data}?"
    return Page(title, lead, tuple(blocks), command, seconds)


def _leading_blocks(
    report: TournamentReport, photos: Dataset, maps: Mapping[str, CandidateMaps]
) -> list[Block]:
    """Show some maps of the recommended candidate, if it has maps."""
    if report.recommended not in maps:
        return []
    shown = [result for result in report.ranked if result.name == report.recommended]
    rows = _photos_with_maps(shown, photos, maps, MAX_LEADING)
    return [Maps(f"Where {report.recommended} attends", rows)] if rows else []


def _maps_blocks(
    report: TournamentReport, photos: Dataset, maps: Mapping[str, CandidateMaps]
) -> list[Block]:
    # Group winners and the recommended one first, then the best of the others.
    preferred = sorted(
        report.ranked, key=lambda r: not (r.group_winner or r.name == report.recommended)
    )
    names = {result.name for result in preferred[:MAX_MAPS]}
    shown = [result for result in report.ranked if result.name in names]
    rows = _photos_with_maps(shown, photos, maps)
    if not rows or not names & maps.keys():
        return []
    notes = ["Maps for the true class: light where the model attends, dark elsewhere."]
    if len(report.ranked) > len(names):
        notes.append(f"{len(report.ranked) - len(names)} more candidates are in pictures.jpg.")
    return [Maps("Attention maps", rows, tuple(notes))]


def _photos_with_maps(
    results: Sequence[CandidateResult],
    photos: Dataset,
    maps: Mapping[str, CandidateMaps],
    count: int | None = None,
) -> tuple[PhotoWithMaps, ...]:
    rows = []
    for i, photo in readable(range(len(photos)), photos, lambda i: i)[:count]:
        tiles = []
        for result in results:
            values = map_values(maps[result.name][1][i]) if result.name in maps else ()
            tiles.append(MapTile(result.name, values, _map_note(result, maps)))
        caption = photos[i].label or photos.path(i).name
        rows.append(PhotoWithMaps(picture_of(photo), caption, tuple(tiles)))
    return tuple(rows)


def _box_blocks(report: TournamentReport) -> list[Block]:
    boxed = [result for result in report.ranked if result.boxes]
    if not boxed or report.centred_box is None:
        return []
    bars = [Bar(r.name, fmean(r.boxes), BOX_SOURCES.get(r.map or "", "")) for r in boxed]
    bars.sort(key=lambda bar: -bar.value)
    note = f"MaxBoxAccV2 on {report.box_images} uncropped images, without training on any box."
    baseline = Bar("a fixed box in the middle:", report.centred_box)
    return [Bars("Boxes without box labels", "%", tuple(bars), (note,), baseline)]
