"""The HTML page of a tournament: table, accuracy against parameters, maps, boxes."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from ...data import BadImage, Dataset
from ..tournament import (
    CandidateMaps,
    CandidateResult,
    TournamentReport,
    explanations,
    failures,
    tournament_columns,
)
from ..tournament_figures import MAP_KINDS
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
    declared_table,
)
from .pictures import map_values, picture_of

BOX_SOURCES = {
    "pool": "from the pool's own map",
    "cam": "from the CAM of the true class",
    "cls": "from CLS attention",
}
MAX_MAPS = 12  # candidates whose maps are on the page


def tournament_page(
    report: TournamentReport,
    photos: Dataset,
    maps: Mapping[str, CandidateMaps],
    command: str = "",
    seconds: float | None = None,
) -> Page:
    """Return the page of a tournament; the arguments are those of `write_tournament`."""
    blocks = [_table(report), _scatter(report), _maps(report, photos, maps), _boxes(report)]
    lead = f"{report.recommendation} The backbone, {report.backbone}, is frozen."
    title = f"Which pooling suits {report.data}?"
    return Page(title, lead, tuple(block for block in blocks if block), command, seconds)


def _table(report: TournamentReport) -> Block:
    recommended = [i for i, r in enumerate(report.standings) if r.name == report.recommended]
    notes = [*failures(report), *explanations(report)]
    if recommended:
        notes.insert(0, "In bold: the recommended one.")
    columns = tournament_columns(report)
    return declared_table("Standings", columns, report.standings, notes, recommended)


def _scatter(report: TournamentReport) -> Block | None:
    y_label = f"accuracy on {report.images} {report.judged} images (%)"
    note = "Lines are standard deviations over the seeds"
    if report.kind == "gamma":  # candidates without a fixed gamma are only in the table
        points = [_point(r, r.gamma) for r in report.ranked if r.gamma is not None]
        scatter = Scatter(
            "Accuracy against γ", "exponent γ", y_label, tuple(points), False, (f"{note}.",)
        )
    else:
        points = [_point(r, r.trained, r.group_winner) for r in report.ranked]
        scatter = Scatter(
            "Accuracy against parameters",
            "trained parameters (pool and head)",
            y_label,
            tuple(points),
            True,
            (f"{note}; stars are winners of their groups.",),
        )
    return scatter if points else None


def _point(result: CandidateResult, x: float, best: bool = False) -> Point:
    return Point(result.name, float(x), result.mean, result.deviation, result.group, best)


def _maps(
    report: TournamentReport, photos: Dataset, maps: Mapping[str, CandidateMaps]
) -> Block | None:
    results = report.ranked
    # Group winners and the recommended one first, then the best of the others.
    preferred = sorted(results, key=lambda r: not (r.group_winner or r.name == report.recommended))
    names = {result.name for result in preferred[:MAX_MAPS]}
    if not names & maps.keys():
        return None
    rows = []
    for i in range(len(photos)):
        try:
            picture = picture_of(photos.image(i))
        except BadImage:  # has been deleted meanwhile
            continue
        tiles = tuple(_map_tile(r, i, maps) for r in results if r.name in names)
        rows.append(PhotoWithMaps(picture, photos[i].label or photos.path(i).name, tiles))
    notes = ["Maps for the true class: light where the model attends, dark elsewhere."]
    if len(results) > len(names):
        notes.append(f"{len(results) - len(names)} more candidates are in pictures.jpg.")
    return Maps("Attention maps", tuple(rows), tuple(notes)) if rows else None


def _map_tile(result: CandidateResult, photo: int, maps: Mapping[str, CandidateMaps]) -> MapTile:
    kind, values = maps.get(result.name, ("", None))
    note = f"{result.mean:.1f}% · {MAP_KINDS.get(kind, 'no map')}"
    return MapTile(result.name, () if values is None else map_values(values[photo]), note)


def _boxes(report: TournamentReport) -> Block | None:
    bars = [
        Bar(result.name, fmean(result.boxes), None, BOX_SOURCES.get(result.map or "", ""))
        for result in report.standings
        if result.boxes
    ]
    if not bars or report.centred_box is None:
        return None
    bars.sort(key=lambda bar: -bar.value)
    note = f"MaxBoxAccV2 on {report.box_images} uncropped images, without training on any box."
    baseline = Bar("a fixed box in the middle:", report.centred_box)
    return Bars("Boxes without box labels", "%", tuple(bars), (note,), baseline)
