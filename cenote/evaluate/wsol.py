"""Weakly supervised object localization: boxes from a classifier's maps.

A threshold chosen on the evaluated images themselves is an oracle, as in published figures. The
honest figure uses the threshold chosen on validation images. Both are reported, beside the score of
a fixed box in the middle of every image.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Required, TypedDict

import numpy as np
import torch
from torch import Tensor

from ..data import BadImage, Dataset
from ..data.ground_truth import boxes_of, mask_of, one_class_each, own_boxes
from ..metrics import BoxAccuracy, PixelPrecision, boxes_at, class_ranks, resize_mask
from ..metrics.arrays import Array
from ..metrics.box_accuracy import KINDS, CentredBox
from ..models import PooledModel
from ..predict.embedding import Loading
from ..predict.maps import MapBatch, MapPredictor
from ..predict.thresholds import Calibration
from ..report.localization import LocalizationCase
from .classify import class_indices
from .protocol import Figure, Report, count_images, left_out

COLUMN_WIDTHS = {0.3: 11, 0.5: 7, 0.7: 7}  # of the table, by IoU
INTERVAL = 0.01  # between thresholds
BIN_WIDTH = 0.01  # of PxAP
MAX_CLASSES = 10  # in the table
ROWS = {
    "max_box_acc_v2": "MaxBoxAccV2, all contours",
    "max_box_acc": "MaxBoxAcc, largest contour",
    "predicted_class": "V2 of the predicted class",
    "centred_box": "V2 of a fixed centred box",
}


class LocalizationScore(TypedDict, total=False):
    """Right boxes in percent of the images with boxes."""

    score: Required[float]
    iou: list[float]  # from which a box is right
    per_iou: list[float]
    thresholds: list[float]  # the best for each IoU
    sides: list[float]  # of a centred box, instead of thresholds
    interval95: list[float]  # of the score
    top1: float  # box and class right
    top5: float


class ValidationImages(TypedDict):
    images: int
    unreadable: list[str]


Scores = dict[str, LocalizationScore]  # of the keys of ROWS


@dataclass
class ClassBoxes:
    """CorLoc in percent of a class: its images with a right box, from IoU 0.5 on."""

    name: str
    images: int
    corloc: float
    centred_box: float  # the CorLoc of a fixed box in the middle


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
    dataset: Dataset  # the evaluated images
    # Threshold of the largest contour, the box to draw (`middle_threshold`): chosen on validation
    # images if there are any.
    threshold: float | None = None
    threshold_from: str | None = None  # "val" or "test"
    chosen: Scores | None = None
    oracle: Scores | None = None
    val: ValidationImages | None = None
    accuracy: dict[str, float] | None = None  # top1, top5
    mean_iou: float | None = None
    # Of multi-label images, each of which is evaluated once for each of its classes.
    by_class: list[ClassBoxes] | None = None
    positions: list[int] = field(default_factory=list)  # of the images with boxes, in `dataset`
    ious: Array | None = None  # (n,): of their largest contour at the threshold
    thresholds: Array | None = None  # (T,)
    curves: dict[str, Array] = field(default_factory=dict)  # "test", "val": (3, T), right boxes
    cases: list[LocalizationCase] = field(default_factory=list)
    not_in_json = ("dataset", "positions", "ious", "thresholds", "curves", "cases")

    @property
    def best(self) -> Scores | None:
        """The scores to compare with: the honest ones if there are any."""
        return self.chosen or self.oracle

    def to_json(self) -> dict[str, object]:
        report = super().to_json()
        for key in ("accuracy", "mean_iou", "by_class"):
            if report[key] is None:
                del report[key]
        if self.mean_iou is not None:
            report["cases"] = [case.to_json() for case in self.cases]
        return report

    def table(self, split: str) -> str:
        lines = left_out(self.unreadable)
        unit = count_images(self.images)
        if self.by_class is not None:
            unit = f"{self.images} pairs of image and class"
        summary = f"{unit}, {self.size} x {self.size} pixels, {self.kind} map"
        if self.accuracy is not None:
            summary += f"; class right: top-1 {self.accuracy['top1']:.1f}"
        lines.append(summary)
        for title, scores in (
            ("thresholds chosen on validation images, applied here", self.chosen),
            ("oracle: thresholds chosen on these very images", self.oracle),
        ):
            if scores is not None:
                heads = f"{'IoU 0.3':>9}{'0.5':>7}{'0.7':>7}{'Top-1':>8}{'Top-5':>7}"
                lines += ["", f"{title:<52}{heads}", *_score_rows(scores)]
        if self.pxap is not None:
            bins = f"{self.images_with_masks} masks, bins of {self.bin_width:g}"
            lines += ["", f"PxAP {self.pxap:.1f} ({bins})"]
        if self.threshold is not None:
            sources = {"val": "validation images", "test": "these images (an oracle's)"}
            source = sources[str(self.threshold_from)]
            threshold = f"largest contour at threshold {self.threshold:.2f}, from {source}"
            lines += ["", f"{threshold}: mean IoU {self.mean_iou:.1f}"]
        if self.by_class is not None:
            lines += _class_rows(self.by_class)
        best = self.best
        if best is not None and best["centred_box"]["score"] >= best["max_box_acc_v2"]["score"]:
            lines.append("a fixed box in the middle scores no less: the maps find nothing yet")
        lines += left_out(unknown_class=self.unknown_class, without_truth=self.without_truth)
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


def _class_rows(classes: list[ClassBoxes]) -> Iterator[str]:
    corloc, centred = (
        sum(getattr(c, key) for c in classes) / len(classes) for key in ("corloc", "centred_box")
    )
    yield f"CorLoc, the mean of {len(classes)} classes: {corloc:.1f} (fixed centred box {centred:.1f})"
    for c in sorted(classes, key=lambda c: -c.images)[:MAX_CLASSES]:
        yield f"  {c.name:<28}{c.corloc:6.1f} ({c.centred_box:.1f}) of {count_images(c.images)}"
    if len(classes) > MAX_CLASSES:
        yield f"  and {len(classes) - MAX_CLASSES} classes with fewer images: --json or -o has all"


def _score_rows(scores: Scores) -> Iterator[str]:
    for key, score in scores.items():
        interval = ""
        if "interval95" in score:
            interval = "[{:.1f}, {:.1f}]".format(*score["interval95"])
        row = f"  {ROWS[key]:<28}{score['score']:6.1f}  {interval:<14}"
        if "per_iou" in score:
            pairs = zip(score["iou"], score["per_iou"], strict=True)
            shares = {iou: f"{share:.1f}" for iou, share in pairs}
            row += "".join(f"{shares.get(iou, ''):>{w}}" for iou, w in COLUMN_WIDTHS.items())
        if "top1" in score and key != "centred_box":
            row += f"{score['top1']:8.1f}{score['top5']:7.1f}"
        yield row.rstrip()


@torch.no_grad()
def localize(
    model: PooledModel,
    test: Dataset,
    val: Dataset | None = None,
    kind: str = "auto",
    size: int | None = None,
    resamples: int = 1000,
    cases: int = 6,
    loading: Loading = Loading(32),
) -> LocalizationReport:
    """Evaluate the maps of whole images for their true classes, with thresholds chosen on `val`.

    `kind` as for `model.attend`, or "object", fitted to the images of `test`; `size` is the side of
    the square that images are resized to, and of the maps. Images need a class that the model
    knows, and a box or a mask. `cases`: the number of the worst, median and best images to show.
    Progress counts the images of `test` and `val`.
    """
    several = model.multi_label or test.multi_label
    test, val = one_class_each(test), None if val is None else one_class_each(val)
    images, classes, unused = usable_images(model, test, masks=True)
    if not len(images):
        raise ValueError(
            f"no image of {test.name} has both a class that the model knows and a box or a mask"
        )
    predictor = MapPredictor.create(model, kind, size, loading.batch, loading.workers, images)
    loading.advance(len(test) - len(images))
    chosen_on, threshold = None, None
    if val is not None:
        val_images, val_classes, _ = usable_images(model, val, masks=False)
        loading.advance(len(val) - len(val_images))
        val_metrics = LocalizationMetrics(threshold=0.0, thorough=False)
        val_metrics.run(predictor, val_images, val_classes, loading)
        if val_metrics.all_contours.count:
            chosen_on, threshold = val_metrics, middle_threshold(val_metrics.largest_contour)
    metrics = LocalizationMetrics(resamples, threshold)
    metrics.run(predictor, images, classes, loading)
    if not metrics.images:
        reason = (metrics.bad or ["none has a box or a mask"])[0]
        raise ValueError(f"no image of {test.name} could be evaluated: {reason}")
    pixels = metrics.pixels
    report = LocalizationReport(
        kind=predictor.kind,
        size=predictor.size,
        interval=INTERVAL,
        images=metrics.images,
        images_with_boxes=metrics.all_contours.count,
        pxap=100 * pixels.result() if pixels.pixels[1].any() else None,  # masks with an object
        bin_width=pixels.bin_width,
        images_with_masks=pixels.count,
        unknown_class=unused["unknown_class"],
        without_truth=unused["without_truth"] + metrics.without_truth,
        unreadable=metrics.bad,
        dataset=images,
        thresholds=metrics.all_contours.thresholds,
    )
    if metrics.ranks:
        ranks = np.array(metrics.ranks)
        report.accuracy = {f"top{k}": 100 * float((ranks < k).mean()) for k in (1, 5)}
    if chosen_on is not None:
        report.val = {"images": chosen_on.all_contours.count, "unreadable": chosen_on.bad}
    if metrics.all_contours.count:
        _add_boxes(report, metrics, chosen_on)
        if several:
            report.by_class = _class_boxes(report, metrics, chosen_on or metrics)
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


def _add_boxes(
    report: LocalizationReport, metrics: LocalizationMetrics, chosen_on: LocalizationMetrics | None
) -> None:
    report.positions, report.oracle = metrics.positions, metrics.scores(metrics)
    report.curves = {"test": metrics.all_contours.curve()}
    if chosen_on is None:
        accuracy = metrics.largest_contour
        report.threshold, report.threshold_from = middle_threshold(accuracy), "test"
        column = int(np.abs(accuracy.thresholds - report.threshold).argmin())
        report.ious = np.array([curve[column] for curve in metrics.ious], np.float32)
    else:
        report.threshold, report.threshold_from = metrics.threshold, "val"
        report.ious = np.array(metrics.ious, np.float32)
        report.chosen = metrics.scores(chosen_on)
        report.curves["val"] = chosen_on.all_contours.curve()
    report.mean_iou = 100 * float(report.ious.mean())


def _class_boxes(
    report: LocalizationReport, metrics: LocalizationMetrics, chosen_on: LocalizationMetrics
) -> list[ClassBoxes]:
    """Return the CorLoc of each class; the side of the centred box is that of `chosen_on`."""
    assert report.ious is not None
    accuracy = chosen_on.centred_box
    side = accuracy.result().thresholds[accuracy.deltas.index(0.5)]
    column = int(np.abs(accuracy.thresholds - side).argmin())
    centred = np.array([overlaps[column] for overlaps in metrics.centred_ious]) >= 0.5
    labels, right = report.dataset.labels[report.positions], report.ious >= 0.5
    return [
        ClassBoxes(
            name=report.dataset.classes[label],
            images=int((labels == label).sum()),
            corloc=100 * float(right[labels == label].mean()),
            centred_box=100 * float(centred[labels == label].mean()),
        )
        for label in np.unique(labels)
    ]


def middle_threshold(accuracy: BoxAccuracy) -> float:
    """Return the middle of the longest run of thresholds with the most right boxes at IoU 0.5.

    It is the safest one to use: the metric's own is the lowest of them, often 0, at which the box
    of an image unlike these is all of it.
    """
    curve = accuracy.curve()[accuracy.deltas.index(0.5)]
    best = np.diff(curve == curve.max(), prepend=False, append=False)
    edges = np.flatnonzero(best)  # starts and ends of runs, in turn
    starts, ends = edges[::2], edges[1::2]
    longest = int((ends - starts).argmax())
    return float(accuracy.thresholds[(starts[longest] + ends[longest] - 1) // 2])


class LocalizationMetrics:
    """Metrics of maps for the true class: MaxBoxAccV2, MaxBoxAcc, PxAP, and a centred box.

    `thorough` also evaluates masks and the map of the predicted class; without it only what chooses
    a threshold. With a `threshold`, `ious` has the IoU of each image's largest contour at it, else
    at every threshold.
    """

    def __init__(
        self, resamples: int = 0, threshold: float | None = None, thorough: bool = True
    ) -> None:
        self.all_contours = BoxAccuracy(INTERVAL, 2, resamples)
        self.largest_contour = BoxAccuracy(INTERVAL, 1, resamples)
        self.centred_box = CentredBox(INTERVAL, 2, resamples)
        self.predicted_class = BoxAccuracy(INTERVAL, 2)
        self.pixels = PixelPrecision(BIN_WIDTH)
        self.threshold, self.thorough = threshold, thorough
        self.positions: list[int] = []  # of the images with boxes
        self.ious: list[Array] = []  # as two bytes
        self.centred_ious: list[Array] = []  # (T,) each
        self.ranks: list[int] = []  # of the true class, 0 is the best
        self.images = self.without_truth = 0
        self.bad: list[str] = []

    def run(
        self, predictor: MapPredictor, dataset: Dataset, classes: Tensor, loading: Loading
    ) -> None:
        """Add a data set; `classes` (n,) are the model's indices of the images' classes."""
        for batch in predictor.iterate(dataset, classes):
            self.bad += [message for _, message in batch.bad]
            if batch.positions:
                self._add(predictor, dataset, batch, classes[batch.positions])
            loading.advance(len(batch.positions) + len(batch.bad))

    def _add(
        self, predictor: MapPredictor, dataset: Dataset, batch: MapBatch, classes: Tensor
    ) -> None:
        maps, finite, ranks = predictor.scores(batch.maps), batch.finite(), None
        if batch.logits is not None and not predictor.model.multi_label:
            ranks = np.asarray(class_ranks(batch.logits, classes))
        boxed, boxes, names = list[int](), list[Array](), list[str]()
        for i, position in enumerate(batch.positions):
            name, messages = str(dataset.path(position)), len(self.bad)
            if not finite[i]:
                self.bad.append(f"{name}: its features are NaN or infinite")
                continue
            useful = self.thorough and self._add_mask(maps[i], dataset, position, batch.sizes[i])
            try:
                truth = boxes_of(dataset, position, batch.sizes[i])
            except ValueError as error:
                self.bad.append(str(error))
                truth = np.empty((0, 4))
            if len(truth):
                boxed.append(i)
                boxes.append(truth)
                names.append(name)
            if useful or len(truth):
                self.images += 1
                if ranks is not None:
                    self.ranks.append(int(ranks[i]))
            elif len(self.bad) == messages:  # neither a box nor a mask
                self.without_truth += 1
        if not boxed:
            return
        self.positions += [batch.positions[i] for i in boxed]
        columns: tuple[Any, ...] = (boxes, [batch.sizes[i] for i in boxed])
        columns += (None if ranks is None else ranks[boxed], names)
        self.all_contours.add(maps[boxed], *columns)
        self.centred_ious += list(self.centred_box.add(maps[boxed], *columns).astype(np.float16))
        overlaps = self.largest_contour.add(maps[boxed], *columns)  # (n, T)
        if self.threshold is not None:
            thresholds = self.largest_contour.thresholds
            overlaps = overlaps[:, np.abs(thresholds - self.threshold).argmin()]
        self.ious += list(overlaps.astype(np.float16))
        if self.thorough and ranks is not None:
            if batch.predicted_class_maps is not batch.maps:
                maps = predictor.scores(batch.predicted_class_maps)
            self.predicted_class.add(maps[boxed], *columns)

    def _add_mask(
        self, score_map: Array, dataset: Dataset, position: int, size: tuple[int, int]
    ) -> bool:
        """Add the pixels of an image; return whether it has a mask of its object."""
        if dataset.mask_codes.startswith("classes"):  # of a scene, not of the image's object
            return False
        try:
            mask = mask_of(dataset, position, size)
        except BadImage as error:
            self.bad.append(str(error))
            return False
        if mask is None:
            return False
        truth = resize_mask(mask, score_map.shape)
        self.pixels.add(score_map, truth, str(dataset.path(position)))
        return True

    def scores(self, chosen_on: LocalizationMetrics) -> Scores:
        """Return scores in percent at the best thresholds of `chosen_on`, which may be itself."""
        scores = {
            "max_box_acc_v2": _box_score(self.all_contours, chosen_on.all_contours),
            "max_box_acc": _box_score(self.largest_contour, chosen_on.largest_contour),
        }
        if self.predicted_class.count:  # at the same thresholds, which do not depend on the class
            thresholds = chosen_on.all_contours.result().thresholds
            scores["predicted_class"] = {"score": 100 * self.predicted_class.at(thresholds).score}
        box = _box_score(self.centred_box, chosen_on.centred_box)
        box["sides"] = [round(1 - t, 4) for t in box.pop("thresholds")]
        return {**scores, "centred_box": box}


def _box_score(accuracy: BoxAccuracy, chosen_on: BoxAccuracy) -> LocalizationScore:
    best, oracle = accuracy.at(chosen_on.result().thresholds), chosen_on is accuracy
    report: LocalizationScore = {
        "score": 100 * best.score,
        "iou": list(accuracy.deltas),
        "per_iou": [100 * share for share in best.per_iou],
        "thresholds": [round(t, 6) for t in best.thresholds],
    }
    if accuracy.resamples:
        bounds = accuracy.bounds(thresholds=None if oracle else best.thresholds)
        report["interval95"] = [100 * bound for bound in bounds]
    if accuracy.ranked == accuracy.count:
        top1, top5 = (
            accuracy.result(kind) if oracle else accuracy.at(best.thresholds, kind)
            for kind in KINDS[1:]
        )
        report |= {"top1": 100 * top1.score, "top5": 100 * top5.score}
    return report


def pick_cases(ious: Array, count: int) -> dict[int, str]:
    """Return the indices of at most `count` of the worst, median and best; ties keep the order."""
    order = np.argsort(ious, kind="stable").tolist()
    middle = max(0, (len(order) - count) // 2)
    median = order[middle : middle + count]
    group_of: dict[int, str] = {}
    for group, indices in (
        ("worst", order[:count]),
        ("median", median),
        ("best", order[::-1][:count]),
    ):
        group_of |= {index: group for index in indices if index not in group_of}
    return group_of


def _select_cases(
    predictor: MapPredictor, report: LocalizationReport, classes: Tensor, count: int
) -> list[LocalizationCase]:
    """Predict the maps of the cases again: keeping all maps would need memory for every image."""
    assert report.ious is not None and report.threshold is not None
    picked, names = list(pick_cases(report.ious, count).items()), predictor.model.class_names
    positions = [report.positions[index] for index, _ in picked]
    images = report.dataset.select(positions)
    cases = []
    for batch in predictor.iterate(images, classes[positions]):
        if not batch.positions:
            continue
        maps = predictor.scores(batch.maps)
        for i, index in enumerate(batch.positions):
            size, predicted = batch.sizes[i], None
            boxes = boxes_at(maps[i], report.threshold) * np.array([*size, *size]) / predictor.size
            if batch.logits is not None and not predictor.model.multi_label:
                best = int(batch.logits[i].argmax())
                predicted = str(best) if names is None else names[best]
            case = LocalizationCase(
                group=picked[index][1],
                position=positions[index],
                file=str(images.path(index)),
                iou=float(report.ious[picked[index][0]]),
                box=next(map(tuple, boxes.tolist()), None),
                truth=boxes_of(images, index, size),
                map=maps[i],
                label=images[index].label,
                predicted=predicted,
            )
            cases.append(case)
    return cases
