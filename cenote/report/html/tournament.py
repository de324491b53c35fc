"""A tournament as a page: the standings, accuracy against parameters, where each looks, boxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...data import BadImage, Dataset
from ..tournament import MAPS, count, notes
from ..tournament_pictures import KINDS, Seen
from .blocks import (
    Bar,
    Bars,
    Block,
    CellValue,
    Maps,
    MapTile,
    PhotoWithMaps,
    Point,
    Scatter,
    Table,
    TableColumn,
)
from .page import Page
from .pictures import map_values, picture_of

Report = Mapping[str, Any]
Column = tuple[TableColumn, Callable[[Mapping[str, Any]], CellValue]]
SOURCES = {
    "pool": "from the pool's own map",
    "cam": "from the CAM of the true class",
    "cls": "from CLS attention",
}
SHOWN = 12  # contenders whose maps are shown, the best and the first of each group


def tournament_page(
    report: Report,
    photos: Dataset,
    maps: Mapping[str, Seen],
    command: str = "",
    seconds: float | None = None,
) -> Page:
    """`report`, `photos` and `maps` as `cenote.report.tournament.write_tournament` takes them."""
    found = [_standings(report), _plot(report), _looks(report, photos, maps), _boxes(report)]
    title = f"Which pooling suits {report['data']}?"
    lead = f"{report['recommendation']} The backbone, {report['backbone']}, is frozen."
    return Page(title, lead, tuple(block for block in found if block is not None), command, seconds)


def _columns(report: Report) -> list[Column]:
    rows = report["standings"]
    place = {row["name"]: i for i, row in enumerate(rows, 1) if row["mean"] is not None}
    columns: list[Column] = [
        (TableColumn("#", True, "place"), lambda row: place.get(row["name"])),
        (TableColumn("contender"), lambda row: row["name"]),
        (TableColumn("", help="= cannot be told from the first, * first of its group"), _marks),
        (TableColumn("group"), lambda row: row["group"]),
        (TableColumn("accuracy", True, "percent, mean ± deviation over the seeds"), _accuracy),
        (TableColumn("params", True, "of the pool"), lambda row: count(row["parameters"])),
        (
            TableColumn("trained", True, "parameters of the pool and its head"),
            lambda row: count(row["trained"]),
        ),
        (
            TableColumn("MFLOPs", True, "the pool's multiply-adds, in millions"),
            lambda row: f"{row['flops'] / 1e6:.2f}",
        ),
    ]
    if any("ms" in row for row in rows):
        columns.append(
            (
                TableColumn("ms", True, "pool and head, an image"),
                lambda row: _fixed(row.get("ms"), 3),
            )
        )
    if report["box_images"]:
        columns.append(
            (
                TableColumn("boxes", True, "MaxBoxAccV2 of its map"),
                lambda row: _fixed(_mean(row["boxes"]), 1),
            )
        )
        columns.append(
            (
                TableColumn("map", help="where it looks: its own map, a CAM or CLS"),
                lambda row: MAPS[row["map"]],
            )
        )
    columns.append(
        (TableColumn("rate", True, "learning rate that validation chose"), lambda row: row["lr"])
    )
    if any(row["paper"] for row in rows):
        columns.append(
            (
                TableColumn("paper", True, "accuracy in the paper"),
                lambda row: _fixed(row["paper"], 1),
            )
        )
    return columns


def _standings(report: Report) -> Block:
    columns, rows = _columns(report), report["standings"]
    cells = tuple(tuple(value(row) for _, value in columns) for row in rows)
    marked = tuple(i for i, row in enumerate(rows) if row["name"] == report.get("recommended"))
    failed = [f"{row['name']} stopped: {row['failed']}" for row in rows if row["failed"]]
    told = ["In bold: the recommended one."] if marked else []
    return Table(
        "Standings",
        tuple(head for head, _ in columns),
        cells,
        (*failed, *told, *notes(report)),
        marked,
    )


def _plot(report: Report) -> Block | None:
    """Over gamma where that is what differs; what has no fixed one is in the table alone."""
    rows = [row for row in report["standings"] if row["mean"] is not None]
    by_gamma = report["kind"] == "gamma"
    if by_gamma:
        rows = [
            row
            for row in rows
            if "gamma" in row["options"] and not row["options"].get("learn_gamma")
        ]
    points = tuple(
        Point(row["name"], float(row["options"]["gamma"] if by_gamma else row["trained"]), row["mean"],
              row["deviation"] or 0.0, row["group"], bool(row["group_winner"]) and not by_gamma)
        for row in rows
    )  # fmt: skip
    if not points:
        return None
    y = f"accuracy on {report['images']} {report['judged']} images (%)"
    told = "Lines are deviations over the seeds"
    if by_gamma:
        return Scatter("Accuracy against γ", "exponent γ", y, points, False, (f"{told}.",))
    x = "trained parameters (pool and head)"
    return Scatter(
        "Accuracy against parameters",
        x,
        y,
        points,
        True,
        (f"{told}; stars are winners of their groups.",),
    )


def _looks(report: Report, photos: Dataset, maps: Mapping[str, Seen]) -> Block | None:
    able = [row for row in report["standings"] if row["mean"] is not None]
    # The first of each group and the recommended one, then the best of the others.
    first = sorted(
        able, key=lambda row: not (row["group_winner"] or row["name"] == report.get("recommended"))
    )
    rows = [row for row in able if row in first[:SHOWN]]
    if not any(row["name"] in maps for row in rows):
        return None
    rows_of_photos = []
    for i in range(len(photos)):
        try:
            picture = picture_of(photos.image(i))
        except BadImage:  # it was there a minute ago
            continue
        found = tuple(_map(row, i, maps) for row in rows)
        rows_of_photos.append(PhotoWithMaps(picture, photos[i].label or photos.path(i).name, found))
    left = len(able) - len(rows)
    told = [
        "Light falls where each looks for the true class; what it does not look at lies under dark water."
    ]
    told += [f"{left} more contenders are in pictures.jpg."] if left else []
    return Maps("Where each looks", tuple(rows_of_photos), tuple(told)) if rows_of_photos else None


def _map(row: Mapping[str, Any], i: int, maps: Mapping[str, Seen]) -> MapTile:
    kind, found = maps.get(row["name"], ("", None))
    values = () if found is None else map_values(found[i])
    return MapTile(row["name"], values, f"{row['mean']:.1f}% · {KINDS.get(kind, 'no map')}")


def _boxes(report: Report) -> Block | None:
    bars = tuple(
        Bar(row["name"], sum(row["boxes"]) / len(row["boxes"]), None, SOURCES.get(row["map"], ""))
        for row in report["standings"]
        if row["boxes"]
    )
    if not bars:
        return None
    fixed = Bar("a fixed box in the middle, which sees nothing:", report["centred_box"])
    note = f"MaxBoxAccV2 on {report['box_images']} whole images. No box was trained with."
    return Bars(
        "Boxes without box labels",
        "%",
        tuple(sorted(bars, key=lambda bar: -bar.value)),
        (note,),
        fixed,
    )


def _marks(row: Mapping[str, Any]) -> str:
    return ("=" if row["tie"] else "") + ("*" if row["group_winner"] else "")


def _accuracy(row: Mapping[str, Any]) -> str:
    return "failed" if row["mean"] is None else f"{row['mean']:.1f} ± {row['deviation']:.1f}"


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _fixed(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"
