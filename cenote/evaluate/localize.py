"""The protocol "localize": evaluate a model's maps, and store how `cenote localize` makes boxes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from ..data import Dataset
from ..data.ground_truth import one_class_each
from ..models import PooledModel
from ..predict.embedding import Loading
from ..predict.maps import MapPredictor
from ..predict.thresholds import FILE, Calibration, read_threshold
from ..progress import progress_bar
from ..report.blocks import Block, Table, TableColumn
from ..report.localization import case_page, draw_curves, localization_blocks
from .protocol import Evaluation, Picture, Protocol
from .wsol import LocalizationReport, localize

CLASS_COLUMNS = ("images", "CorLoc (%)", "of a fixed centred box (%)")
log = logging.getLogger(__name__)


class Localize(Protocol[LocalizationReport], name="localize"):
    def run(self, evaluation: Evaluation) -> LocalizationReport:
        test, val = evaluation.test, evaluation.splits.val
        pairs = sum(len(one_class_each(images)) for images in (test, val) if images is not None)
        with evaluation.loading("localize", pairs) as loading:
            report = localize(evaluation.model, test, val, evaluation.map, loading=loading)
            if report.threshold is not None:
                _save_threshold(evaluation, report, val, loading)
        return report

    def pictures(self, evaluation: Evaluation, report: LocalizationReport) -> Iterable[Picture]:
        values = report.to_json()
        if report.curves:
            yield "curve.png", lambda: draw_curves(values, report.thresholds, report.curves)
        if report.cases:
            yield "cases.jpg", lambda: case_page(report.cases, report.dataset, values)

    def blocks(self, evaluation: Evaluation, report: LocalizationReport) -> list[Block]:
        if report.best is None:
            return []
        blocks = localization_blocks(report.to_json(), report.cases, report.dataset)
        if report.by_class is not None:
            columns = (TableColumn("class"), *(TableColumn(name, True) for name in CLASS_COLUMNS))
            rows = [
                (c.name, c.images, round(c.corloc, 1), round(c.centred_box, 1))
                for c in report.by_class
            ]
            blocks.append(Table("CorLoc of each class", columns, tuple(rows)))
        return blocks


def calibrate(
    model: PooledModel,
    images: Dataset,
    split: str,
    kind: str = "auto",
    size: int | None = None,
    loading: Loading = Loading(32),
) -> Calibration:
    """Choose a threshold on images with boxes.

    "auto" without a size also chooses the map, by the share of right boxes: the object map, the
    model's own at the size of training, or at twice that size.
    """
    maps = [(kind, size)]
    if kind == "auto" and size is None:
        maps = _possible_maps(model)
    calibrations, unreadable = list[Calibration](), set[str]()
    pairs = len(one_class_each(images))
    for i, (map_kind, map_size) in enumerate(maps, 1):
        with progress_bar(f"comparing maps, {i} of {len(maps)}", pairs) as bar:
            report = localize(
                model,
                images,
                kind=map_kind,
                size=map_size,
                resamples=0,
                cases=0,
                loading=replace(loading, progress=bar.update),
            )
        calibrations.append(report.calibration(images.name, split))
        unreadable.update(report.unreadable)
    for message in sorted(unreadable):
        log.info("left out: %s", message)
    return max(calibrations, key=lambda calibration: calibration.max_box_acc)


def _possible_maps(model: PooledModel) -> list[tuple[str, int | None]]:
    """Return kinds and sizes of maps to choose from; the cheapest first, since ties keep it."""
    size = model.backbone.preprocessing.size
    maps: list[tuple[str, int | None]] = [("auto", size)]
    double = 2 * size
    try:
        MapPredictor.create(model, "auto", double)
        maps.append(("auto", double))
    except ValueError:
        log.info("maps are not looked at with %d pixels: the model does not take them", double)
    try:
        MapPredictor.create(model, "object")
        maps.append(("object", None))
    except ValueError as error:
        log.info("%s", error)
    return maps


def _save_threshold(
    evaluation: Evaluation, report: LocalizationReport, val: Dataset | None, loading: Loading
) -> None:
    """Store the threshold for `cenote localize`; an oracle's only if no other is stored.

    If the kind of map is not given, the map whose boxes are best on the validation images is
    stored, which may be another than the evaluated one.
    """
    folder, oracle = evaluation.folder, report.threshold_from != "val"
    split = evaluation.splits.name if oracle else "val"
    calibration = report.calibration(evaluation.test.name, split, oracle)
    if val is not None and not oracle and evaluation.map == "auto":
        best = calibrate(evaluation.model, val, split, loading=loading)
        if (best.kind, best.size) != (calibration.kind, calibration.size):
            calibration = best
            message = "cenote localize will use the %s map of %d pixels, whose boxes are better"
            log.info(message, best.kind, best.size)
    try:
        stored = read_threshold(folder)
    except (OSError, ValueError):  # unreadable, damaged, or of another model
        stored = None
    if stored is None or not oracle:
        calibration.save(folder)
    else:
        reason = f"it is an oracle's, and {folder / FILE} has one: {stored.source}"
        calibration.log_not_stored(reason)
