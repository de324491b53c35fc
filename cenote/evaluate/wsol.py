"""Weakly supervised object localization: boxes from a classifier's maps.

A threshold chosen on the evaluated images themselves is an oracle, as in published figures. The
honest figure uses the threshold chosen on validation images. Both are reported, beside the score of
a fixed box in the middle of every image.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data import Dataset
from ..data.ground_truth import boxes_of, own_boxes
from ..metrics import boxes_at
from ..metrics.arrays import Array
from ..models import PooledModel
from ..predict.batches import Progress
from ..predict.maps import MapPredictor
from ..predict.thresholds import FILE, Calibration, read_threshold
from ..report.blocks import Block
from ..report.localization import LocalizationCase, case_page, draw_curves, localization_blocks
from .classify import class_indices
from .localization_metrics import LocalizationMetrics
from .protocol import (
    Evaluation,
    Figure,
    Picture,
    Protocol,
    Report,
    count_images,
    left_out,
    register,
    without_nan,
)

log = logging.getLogger(__name__)
ROWS = {
    "max_box_acc_v2": "MaxBoxAccV2, all contours",
    "max_box_acc": "MaxBoxAcc, largest contour",
    "predicted_class": "V2 of the predicted class",
    "centred_box": "V2 of a fixed centred box",
}
TITLES = {
    "chosen": "thresholds chosen on validation images, applied here",
    "oracle": "oracle: thresholds chosen on these very images",
}


@dataclass
class LocalizationReport(Report):
    """Scores in percent; `chosen` at the thresholds of validation images, `oracle` at its own."""

    kind: str
    size: int
    interval: float
    images: int
    images_with_boxes: int
    pxap: float | None
    bin_width: float
    images_with_masks: int
    unknown_class: int
    without_truth: int
    unreadable: list[str]
    dataset: Dataset  # the evaluated images; not in results.json
    # Threshold of the largest contour, the box to draw: chosen on validation images if there are
    # any. Of thresholds that are equally good it is one in the middle, not the lowest as in the
    # metric.
    threshold: float | None = None
    threshold_from: str | None = None  # "val" or "test"
    chosen: dict[str, Any] | None = None
    oracle: dict[str, Any] | None = None
    val: dict[str, Any] | None = None
    accuracy: dict[str, float] | None = None  # top1, top5
    mean_iou: float | None = None
    # Not in results.json:
    positions: list[int] = field(default_factory=list)  # of the images with boxes, in `dataset`
    ious: Array | None = None  # (n,): of their largest contour at the threshold
    thresholds: Array | None = None  # (T,)
    curves: dict[str, Array] = field(default_factory=dict)  # "test", "val": (3, T), right boxes
    cases: list[LocalizationCase] = field(default_factory=list)

    @property
    def best(self) -> dict[str, Any] | None:
        """The scores to compare with: the honest ones if there are any."""
        return self.chosen or self.oracle

    def to_json(self) -> dict[str, Any]:
        arrays = ("dataset", "positions", "ious", "thresholds", "curves", "cases")
        report = {key: value for key, value in vars(self).items() if key not in arrays}
        for key in ("accuracy", "mean_iou"):
            if report[key] is None:
                del report[key]
        if self.mean_iou is not None:
            report["cases"] = [case_row(case) for case in self.cases]
        return dict(without_nan(report))

    def table(self, split: str) -> str:
        lines = left_out(self.unreadable)
        summary = f"{count_images(self.images)}, {self.size} x {self.size} pixels, {self.kind} map"
        if self.accuracy is not None:
            summary += f"; class right: top-1 {self.accuracy['top1']:.1f}"
        lines.append(summary)
        for key, title in TITLES.items():
            scores = getattr(self, key)
            if scores is not None:
                heads = f"{'IoU 0.3':>9}{'0.5':>7}{'0.7':>7}{'Top-1':>8}{'Top-5':>7}"
                lines += ["", f"{title:<52}{heads}", *_score_rows(scores)]
        if self.pxap is not None:
            bins = f"{self.images_with_masks} masks, bins of {self.bin_width:g}"
            lines += ["", f"PxAP {self.pxap:.1f} ({bins})"]
        if self.threshold is not None:
            source = "validation images"
            if self.threshold_from == "test":
                source = "these images (an oracle's)"
            lines += [
                "",
                f"largest contour at threshold {self.threshold:.2f}, from {source}: "
                f"mean IoU {self.mean_iou:.1f}",
            ]
        best = self.best
        if best is not None and best["centred_box"]["score"] >= best["max_box_acc_v2"]["score"]:
            lines.append(
                "a fixed box in the middle of every image scores no less: the maps find nothing yet"
            )
        if self.unknown_class:
            images = count_images(self.unknown_class)
            lines.append(f"left out: {images} of classes the model does not know")
        if self.without_truth:
            lines.append(f"left out: {count_images(self.without_truth)} without a box or mask")
        return "\n".join(lines)

    def figures(self) -> list[Figure]:
        figures = []
        if self.best is not None:
            unit = "%, thresholds from validation images" if self.chosen else "%, oracle thresholds"
            names = {
                "max_box_acc_v2": "MaxBoxAccV2",
                "max_box_acc": "MaxBoxAcc",
                "centred_box": "MaxBoxAccV2 of a fixed box in the middle",
            }
            figures = [Figure(name, self.best[key]["score"], unit) for key, name in names.items()]
            figures.append(
                Figure("mean IoU", self.mean_iou, f"% of {self.images_with_boxes} images")
            )
        if self.pxap is not None:
            figures.append(Figure("PxAP", self.pxap, f"% of {self.images_with_masks} masks"))
        return figures

    def calibration(self, data: str, split: str, oracle: bool = False) -> Calibration:
        """Return what is stored beside the model; `split` names the images that chose it."""
        if self.threshold is None or self.best is None:
            raise ValueError(f"no image of {data} has a box: no threshold can be chosen")
        images = self.images_with_boxes
        if self.threshold_from == "val" and self.val is not None:
            images = self.val["images"]
        return Calibration(
            threshold=round(self.threshold, 6),
            kind=self.kind,
            size=self.size,
            chosen_on={"data": data, "split": split, "images": images, "oracle": oracle},
            max_box_acc=round(self.best["max_box_acc"]["score"], 4),
            centred_box=round(self.best["centred_box"]["per_iou"][1], 4),
        )


def _score_rows(scores: dict[str, Any]) -> Iterator[str]:
    for key, name in ROWS.items():
        if key not in scores:
            continue
        score = scores[key]
        interval = "[{:.1f}, {:.1f}]".format(*score["interval95"]) if "interval95" in score else ""
        row = f"  {name:<28}{score['score']:6.1f}  {interval:<14}"
        if "per_iou" in score:
            by_iou = dict(zip(score["iou"], score["per_iou"], strict=True))
            cells = [f"{by_iou[iou]:.1f}" if iou in by_iou else "" for iou in (0.3, 0.5, 0.7)]
            row += f"{cells[0]:>11}{cells[1]:>7}{cells[2]:>7}"
        if "top1" in score and key != "centred_box":
            row += f"{score['top1']:8.1f}{score['top5']:7.1f}"
        yield row.rstrip()


@register("localize")
class Localize(Protocol[LocalizationReport]):
    def run(self, evaluation: Evaluation) -> LocalizationReport:
        test, val = evaluation.test, evaluation.splits.val
        images = len(test) + (0 if val is None else len(val))
        with evaluation.loading("localize", images) as options:
            report = localize(evaluation.model, test, val, **options)
        save_threshold(evaluation, report)
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
        return localization_blocks(report.to_json(), report.cases, report.dataset)


def save_threshold(evaluation: Evaluation, report: LocalizationReport) -> None:
    """Store the threshold for `cenote localize`; an oracle's only if no other is stored."""
    if report.threshold is None:
        return
    folder, oracle = evaluation.folder, report.threshold_from != "val"
    split = evaluation.splits.name if oracle else "val"
    calibration = report.calibration(evaluation.test.name, split, oracle)
    try:
        stored = read_threshold(folder)
    except (OSError, ValueError):  # unreadable, damaged, or of another model
        stored = None
    if oracle and stored is not None:
        reason = f"it is an oracle's, and {folder / FILE} has one: {stored.source}"
    else:
        try:
            calibration.save(folder)
            return
        except OSError as error:  # a shared model may be read-only
            reason = f"{folder / FILE}: {error.strerror or error}"
    log.info(
        "the threshold was not stored (%s): cenote localize --threshold %.2f uses it",
        reason,
        report.threshold,
    )


@torch.no_grad()
def localize(
    model: PooledModel,
    test: Dataset,
    val: Dataset | None = None,
    kind: str = "auto",
    interval: float = 0.01,
    size: int | None = None,
    batch: int = 32,
    workers: int = 0,
    bin_width: float = 0.01,
    resamples: int = 1000,
    cases: int = 6,
    progress: Progress | None = None,
) -> LocalizationReport:
    """Evaluate the maps of whole images for their true classes, with thresholds chosen on `val`.

    `kind` as for `model.attend`; `size` is the side of the square that images are resized to, and
    of the maps. Images need a class that the model knows, and a box or a mask. `cases`: the number
    of the worst, median and best images to show. `progress` counts the images of `test` and `val`.
    """
    predictor = MapPredictor.create(model, kind, size, batch, workers)
    images, classes, unused = usable_images(model, test, masks=True)
    if not len(images):
        raise ValueError(
            f"no image of {test.name} has both a class that the model knows and a box or a mask"
        )
    if progress:
        progress(len(test) - len(images))
    val_metrics = None if val is None else _choose(predictor, val, interval, progress)
    threshold = None if val_metrics is None else val_metrics.best_threshold()
    metrics = LocalizationMetrics(interval, bin_width, resamples, threshold)
    metrics.run(predictor, images, classes, progress)
    if not metrics.images:
        reason = (metrics.bad or ["none has a box or a mask"])[0]
        raise ValueError(f"no image of {test.name} could be evaluated: {reason}")
    report = LocalizationReport(
        kind=predictor.kind,
        size=predictor.size,
        interval=interval,
        images=metrics.images,
        images_with_boxes=metrics.all_contours.count,
        pxap=metrics.pxap(),
        bin_width=metrics.pixels.bin_width,
        images_with_masks=metrics.pixels.count,
        unknown_class=unused["unknown_class"],
        without_truth=unused["without_truth"] + metrics.without_truth,
        unreadable=metrics.bad,
        dataset=images,
        thresholds=metrics.all_contours.thresholds,
    )
    if model.head is not None:
        top1, top5 = metrics.top1 / metrics.images, metrics.top5 / metrics.images
        report.accuracy = {"top1": 100 * top1, "top5": 100 * top5}
    if val_metrics is not None:
        count = val_metrics.all_contours.count
        report.val = {"images": count, "unreadable": val_metrics.bad}
    if metrics.all_contours.count:
        _add_boxes(report, metrics, val_metrics)
        report.cases = _select_cases(predictor, report, classes, cases)
    return report


def usable_images(
    model: PooledModel, dataset: Dataset, masks: bool
) -> tuple[Dataset, Tensor, dict[str, int]]:
    """Select images with a box (or a mask) and a class that the model knows.

    Returns them, the model's indices of their classes, and the number of the others by reason.
    """
    classes = torch.zeros(len(dataset), dtype=torch.long)  # the map does not depend on the class
    if model.head is not None:
        no_class = torch.tensor([-1])  # at index -1, the label of images without a class
        indices = torch.cat([class_indices(model, dataset), no_class])
        classes = indices[torch.from_numpy(dataset.labels)]
    has_class = (classes >= 0).numpy()
    has_truth = np.array([bool(own_boxes(r.boxes, r.label)) for r in dataset], bool).reshape(-1)
    if masks and not dataset.mask_codes.startswith("classes"):
        has_truth |= dataset.has_masks
    counts = {
        "unknown_class": int((~has_class).sum()),
        "without_truth": int((has_class & ~has_truth).sum()),
    }
    positions = np.flatnonzero(has_class & has_truth)
    return dataset.select(positions), classes[positions], counts


def _choose(
    predictor: MapPredictor, val: Dataset, interval: float, progress: Progress | None
) -> LocalizationMetrics | None:
    """Evaluate validation images to choose thresholds; None if they have no boxes."""
    images, classes, _ = usable_images(predictor.model, val, masks=False)
    if progress:
        progress(len(val) - len(images))
    metrics = LocalizationMetrics(interval, threshold=0.0, thorough=False)
    metrics.run(predictor, images, classes, progress)
    return metrics if metrics.all_contours.count else None


def _add_boxes(
    report: LocalizationReport,
    metrics: LocalizationMetrics,
    val_metrics: LocalizationMetrics | None,
) -> None:
    if val_metrics is None:
        report.threshold, report.threshold_from = metrics.best_threshold(), "test"
        thresholds = metrics.largest_contour.thresholds
        column = int(np.abs(thresholds - report.threshold).argmin())
        report.ious = np.array([curve[column] for curve in metrics.ious], np.float32)
    else:
        report.threshold, report.threshold_from = metrics.threshold, "val"
        report.ious = np.array(metrics.ious, np.float32)
        report.chosen = metrics.scores(val_metrics)
    report.positions = metrics.positions
    report.curves = {"test": metrics.all_contours.curve()}
    if val_metrics is not None:
        report.curves["val"] = val_metrics.all_contours.curve()
    report.mean_iou = 100 * float(report.ious.mean())
    report.oracle = metrics.scores()


def pick_cases(ious: Array, count: int) -> dict[int, str]:
    """Return the indices of at most `count` of the worst, median and best; ties keep the order."""
    order = np.argsort(ious, kind="stable")
    middle = max(0, (len(order) - count) // 2)
    groups = {
        "worst": order[:count],
        "median": order[middle : middle + count],
        "best": order[::-1][:count],
    }
    group_of: dict[int, str] = {}
    for group, indices in groups.items():
        for index in indices.tolist():
            group_of.setdefault(index, group)
    return group_of


def _select_cases(
    predictor: MapPredictor, report: LocalizationReport, classes: Tensor, count: int
) -> list[LocalizationCase]:
    """Predict the maps of the cases again: keeping all maps would need memory for every image."""
    assert report.ious is not None and report.threshold is not None
    picked = pick_cases(report.ious, count)
    positions = [report.positions[index] for index in picked]
    ious = [float(report.ious[index]) for index in picked]
    groups, names = list(picked.values()), predictor.model.class_names
    images = report.dataset.select(positions)
    cases = []
    for batch in predictor.iterate(images, classes[positions]):
        if not batch.positions:
            continue
        maps = predictor.scores(batch.maps)
        for i, index in enumerate(batch.positions):
            size, predicted = batch.sizes[i], None
            boxes = boxes_at(maps[i], report.threshold) * np.array([*size, *size]) / predictor.size
            if batch.logits is not None:
                predicted = str(int(batch.logits[i].argmax()))
                predicted = predicted if names is None else names[int(predicted)]
            cases.append(
                LocalizationCase(
                    group=groups[index],
                    position=positions[index],
                    file=str(images.path(index)),
                    iou=ious[index],
                    box=tuple(boxes[0].tolist()) if len(boxes) else None,
                    truth=boxes_of(images, index, size),
                    map=maps[i],
                    label=images[index].label,
                    predicted=predicted,
                )
            )
    return cases


def case_row(case: LocalizationCase) -> dict[str, Any]:
    """Return a case without its map, for JSON."""
    return {
        "group": case.group,
        "file": case.file,
        "iou": round(case.iou, 4),
        "box": None if case.box is None else [round(x, 1) for x in case.box],
        "truth": case.truth.round(1).tolist(),
        "class": case.label,
        "predicted": case.predicted,
    }
