"""Weakly supervised localization: boxes from a classifier's maps, judged as MaxBoxAccV2, MaxBoxAcc and PxAP judge them.

A threshold chosen on the very images that are judged is an oracle: published figures are such. The honest figure is of
the threshold that validation images chose. Both are here, each under its name, beside what a fixed box in the middle
scores, which sees nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data import Dataset
from ..data.truth import own_boxes
from ..metrics import BoxAccuracy
from ..metrics.arrays import Array
from ..metrics.box_accuracy import KINDS
from ..models import PooledModel
from ..models.class_map import resolve_map_kind
from ..predict.maps import MapPredictor
from .cases import Case, show_cases
from .classify import match_labels
from .tally import Progress, Tally


@dataclass
class Localization:
    """`report` is for JSON, shares in percent; the rest is for pictures and for what uses the threshold."""

    report: dict[str, Any]
    judged: Dataset  # the images that could be judged
    thresholds: Array  # (T,)
    curves: dict[str, Array] = field(
        default_factory=dict
    )  # "test", "val": (3, T), right boxes at IoU 0.3, 0.5, 0.7
    positions: list[int] = field(default_factory=list)  # of the images with boxes, in `judged`
    ious: Array | None = None  # (n,): of their largest contour at the threshold
    cases: list[Case] = field(default_factory=list)

    @property
    def threshold(self) -> float | None:
        """Of the largest contour, the box to draw: chosen on validation images where there were any.

        Of thresholds that are equally good it is one in the middle, where the metric takes the lowest."""
        found: float | None = self.report["threshold"]
        return found


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
    each: int = 6,
    progress: Progress | None = None,
) -> Localization:
    """Judge the maps of whole images for their own classes; first `val` chooses thresholds, then `test` is judged.

    `kind` as `model.attend` takes it; `size` is the side of the square that images are squeezed to, and of the maps.
    Images need a class that the model knows, and a box or a mask. `each`: cases of each group to show.
    `progress` hears of every image of both, `len(test) + len(val)` in all.
    """
    model = model.eval()
    size = size or model.backbone.preprocessing.size
    predictor = MapPredictor(model, resolve_map_kind(model, kind, size), size, batch, workers)
    judged, labels, left = usable(model, test, masks=True)
    if not len(judged):
        raise ValueError(
            f"no image of {test.name} has both a class that the model knows and a box or a mask"
        )
    if progress:
        progress(len(test) - len(judged))
    chooser = None if val is None else _choose(predictor, val, interval, progress)
    threshold = None if chooser is None else middle_of_best(chooser.largest)
    tally = Tally(interval, bin_width, resamples, threshold)
    tally.run(predictor, judged, labels, True, progress)
    if not tally.seen:
        raise ValueError(
            f"no image of {test.name} could be judged: {(tally.bad or ['none has a box or a mask'])[0]}"
        )
    report = {
        "kind": predictor.kind,
        "size": size,
        "interval": interval,
        "images": tally.seen,
        "images_with_boxes": tally.all.count,
        "threshold": threshold,
        "threshold_from": None if threshold is None else "val",
        "chosen": None,
        "oracle": None,
        **_pixels(tally),
        **left,
        "without_truth": left["without_truth"] + tally.without_truth,
        "unreadable": tally.bad,
        "val": None
        if chooser is None
        else {"images": chooser.all.count, "unreadable": chooser.bad},
    }
    if model.head is not None:
        report["accuracy"] = {
            "top1": 100 * tally.first / tally.seen,
            "top5": 100 * tally.among_five / tally.seen,
        }
    result = Localization(report, judged, tally.all.thresholds)
    if tally.all.count:
        _add_boxes(result, tally, chooser)
        assert result.threshold is not None and result.ious is not None
        where = result.positions, result.ious, result.threshold
        result.cases = show_cases(predictor, judged, labels, *where, each)
        report["cases"] = [case.row() for case in result.cases]
    return result


def usable(
    model: PooledModel, dataset: Dataset, masks: bool
) -> tuple[Dataset, Tensor, dict[str, int]]:
    """Images with a box (or a mask) and a class that the model knows, the model's numbers of these, and who is left."""
    if model.head is None:  # the map of no class in particular
        classes = torch.zeros(len(dataset), dtype=torch.long)
    else:
        labels = torch.from_numpy(dataset.labels)
        numbers = torch.cat(
            [match_labels(model, dataset), torch.tensor([-1])]
        )  # the last is for images without class
        classes = numbers[labels]
    known = (classes >= 0).numpy()
    seen = np.array(
        [bool(own_boxes(record.boxes, record.label)) for record in dataset], bool
    ).reshape(-1)
    if masks and not dataset.mask_codes.startswith("classes"):
        seen |= dataset.has_masks
    left = {"unknown_class": int((~known).sum()), "without_truth": int((known & ~seen).sum())}
    chosen = np.flatnonzero(known & seen)
    return dataset.select(chosen), classes[chosen], left


def middle_of_best(accuracy: BoxAccuracy) -> float:
    """Of the thresholds with the most right boxes at IoU 0.5, the middle of the longest row: the safest one to use.

    The metric's own is the lowest of them, often 0, at which the box of an image unlike these is all of it.
    """
    curve = accuracy.curve()[accuracy.deltas.index(0.5)]
    edges = np.flatnonzero(
        np.diff(curve == curve.max(), prepend=False, append=False)
    )  # starts and ends, in turn
    starts, ends = edges[::2], edges[1::2]
    longest = int((ends - starts).argmax())
    return float(accuracy.thresholds[(starts[longest] + ends[longest] - 1) // 2])


def _choose(
    predictor: MapPredictor, val: Dataset, interval: float, progress: Progress | None
) -> Tally | None:
    """None where validation images have no boxes: then there is nothing to choose by."""
    judged, labels, _ = usable(predictor.model, val, masks=False)
    if progress:
        progress(len(val) - len(judged))
    tally = Tally(interval, 1.0, 0, threshold=0.0)
    tally.run(predictor, judged, labels, False, progress)
    return tally if tally.all.count else None


def _add_boxes(result: Localization, tally: Tally, chooser: Tally | None) -> None:
    report = result.report
    oracle = middle_of_best(tally.largest)
    if report["threshold"] is None:
        report |= {"threshold": oracle, "threshold_from": "test"}
        column = int(np.abs(tally.largest.thresholds - oracle).argmin())
        result.ious = np.array([curve[column] for curve in tally.ious], np.float32)
    else:
        result.ious = np.array(tally.ious, np.float32)
    result.positions = tally.positions
    result.curves = {"test": tally.all.curve()}
    report["mean_iou"] = 100 * float(result.ious.mean())
    report["oracle"] = _scores(tally, None)
    if chooser is not None:
        result.curves["val"] = chooser.all.curve()
        report["chosen"] = _scores(tally, chooser)


def _scores(tally: Tally, chooser: Tally | None) -> dict[str, Any]:
    """With the thresholds that another tally chose, or else with the best of its own."""
    other = chooser or tally
    found = {
        "max_box_acc_v2": _score(tally.all, other.all),
        "max_box_acc": _score(tally.largest, other.largest),
    }
    if (
        tally.predicted is not None
    ):  # the same thresholds: who uses a model does not know the class either
        found["predicted_class"] = {
            "score": 100 * tally.predicted.at(other.all.result().thresholds).score
        }
    box = _score(tally.centred, other.centred)
    sides = [round(1 - t, 4) for t in box.pop("thresholds")]
    return {**found, "centred_box": {**box, "sides": sides}}


def _score(accuracy: BoxAccuracy, chooser: BoxAccuracy) -> dict[str, Any]:
    best, oracle = accuracy.at(chooser.result().thresholds), chooser is accuracy
    report: dict[str, Any] = {
        "score": 100 * best.score,
        "iou": list(accuracy.deltas),
        "per_iou": [100 * share for share in best.per_iou],
        "thresholds": [round(t, 6) for t in best.thresholds],
    }
    if accuracy.resamples is not None:
        bounds = accuracy.bounds(thresholds=None if oracle else best.thresholds)
        report["interval95"] = [100 * bound for bound in bounds]
    if accuracy.ranked == accuracy.count:
        for kind in KINDS[1:]:
            found = accuracy.result(kind) if oracle else accuracy.at(best.thresholds, kind)
            report[kind] = 100 * found.score
    return report


def _pixels(tally: Tally) -> dict[str, Any]:
    """PxAP, where masks have anything in them."""
    positive = bool(tally.pixels.pixels[1].any())
    return {
        "pxap": 100 * tally.pixels.result() if positive else None,
        "bin_width": tally.pixels.bin_width,
        "images_with_masks": tally.pixels.count,
    }
