"""What `cenote evaluate` found, as a page: the figures at a glance, then what is behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..table import CellValue
from .blocks import Block, Table, TableColumn
from .page import Page

Report = Mapping[str, Any]
Figure = tuple[str, Any, str]  # a name, its value, and what it is of
HEADS = (
    TableColumn("protocol"),
    TableColumn("figure"),
    TableColumn("value", True),
    TableColumn("of"),
)


def evaluation_page(
    title: str,
    reports: Report,
    blocks: Mapping[str, Iterable[Block]],
    command: str = "",
    seconds: float | None = None,
) -> Page:
    """`reports` is the content of results.json; `blocks` by protocol are those of `evaluation_blocks`."""
    found = [
        (name, figure)
        for name, report in reports.items()
        if name in FIGURES
        for figure in FIGURES[name](report)
    ]
    rows = tuple((name, what, _shown(value), of) for name, (what, value, of) in found)
    notes = tuple(f"left out: {one}" for one in _left_out(reports))
    glance = Table("At a glance", HEADS, rows, notes)
    protocols = ", ".join(name for name in reports if name in FIGURES)
    lead = f"{reports['images']} images of {reports['split']}: {protocols}."
    return Page(
        title,
        lead,
        (glance, *(one for name in reports for one in blocks.get(name, ()))),
        command,
        seconds,
    )


def _classify(report: Report) -> Iterable[Figure]:
    of = f"% of {report['images']} images"
    return [("top-1 accuracy", report["accuracy"], of), ("top-5 accuracy", report["top5"], of)]


def _knn(report: Report) -> Iterable[Figure]:
    return [
        (f"{key.removeprefix('knn_')} nearest neighbours", value, "%")
        for key, value in report.items()
    ]


def _linear(report: Report) -> Iterable[Figure]:
    return [("linear probe", report["linear"], "%")]


def _retrieve(report: Report) -> Iterable[Figure]:
    if "medium" in report:
        return [(f"mAP, {part}", report[part]["map"], "%") for part in ("easy", "medium", "hard")]
    names = {key: key.replace("recall", "Recall") for key in report if key.startswith("recall@")}
    names |= {"p@1": "P@1", "r_precision": "R-precision", "map@r": "MAP@R"}
    return [(name, report[key], f"% of {report['queries']} queries") for key, name in names.items()]


def _localize(report: Report) -> Iterable[Figure]:
    figures: list[Figure] = []
    best = report["chosen"] or report["oracle"]
    if best is not None:
        chosen = "thresholds from validation images" if report["chosen"] else "oracle thresholds"
        figures.append(("MaxBoxAccV2", best["max_box_acc_v2"]["score"], f"%, {chosen}"))
        figures.append(("MaxBoxAcc", best["max_box_acc"]["score"], f"%, {chosen}"))
        figures.append(
            (
                "MaxBoxAccV2 of a fixed box in the middle",
                best["centred_box"]["score"],
                f"%, {chosen}",
            )
        )
        figures.append(
            ("mean IoU", report["mean_iou"], f"% of {report['images_with_boxes']} images")
        )
    if report["pxap"] is not None:
        figures.append(("PxAP", report["pxap"], f"% of {report['images_with_masks']} masks"))
    return figures


def _discover(report: Report) -> Iterable[Figure]:
    of = f"% of {report['images']} images"
    return [(f"CorLoc, {name}", score["corloc"], of) for name, score in report["methods"].items()]


def _segment(report: Report) -> Iterable[Figure]:
    return [
        ("mIoU", report["miou"], f"% of {report['images']} images"),
        ("pixel accuracy", report["aacc"], "%"),
    ]


def _background(report: Report) -> Iterable[Figure]:
    gap = report["gap"]
    interval = report.get("gap_interval")
    sure = " (95%: {:+.1f} to {:+.1f})".format(*interval) if interval else ""
    figures: list[Figure] = [("original images", report["accuracy"].get("original"), "%")]
    return [*figures, ("gap of backgrounds", gap, f"points, Mixed-Same − Mixed-Rand{sure}")]


def _corruption(report: Report) -> Iterable[Figure]:
    figures: list[Figure] = [
        ("under corruption", report["mean_accuracy"], "%"),
        ("clean", report["clean"], "%"),
    ]
    return [*figures, ("mCE", report["mce"], "%, lower is better")]


FIGURES = {
    "classify": _classify, "knn": _knn, "linear": _linear, "retrieve": _retrieve, "localize": _localize,
    "discover": _discover, "segment": _segment, "background": _background, "corruption": _corruption,
}  # fmt: skip


def _shown(value: Any) -> CellValue:
    return None if value is None else f"{value:.1f}"


def _left_out(reports: Report, most: int = 5) -> list[str]:
    """Files that could not be used, each once."""
    found = list(
        dict.fromkeys(
            one
            for name in FIGURES
            if name in reports
            for one in reports[name].get("unreadable", ())
        )
    )
    return [*found[:most], f"{len(found) - most} more"] if len(found) > most else found
