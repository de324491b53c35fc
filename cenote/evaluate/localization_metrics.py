"""All localization metrics of a data set in one pass over its maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ..data import BadImage, Dataset
from ..data.ground_truth import boxes_of, mask_of
from ..metrics import BoxAccuracy, PixelPrecision, class_ranks, resize_mask
from ..metrics.arrays import Array
from ..metrics.box_accuracy import KINDS
from ..metrics.centred import CentredBox
from ..predict.batches import Progress
from ..predict.maps import MapBatch, MapPredictor


class KnownOverlaps(BoxAccuracy):
    """Box accuracy whose `add` also takes the result of `overlaps`, (T,), instead of a map."""

    def overlaps(
        self, score_map: Any, boxes: Any, image_size: Sequence[float], name: str = "the image"
    ) -> Array:
        if np.ndim(score_map) == 1:
            return np.asarray(score_map)
        return super().overlaps(score_map, boxes, image_size, name)


class LocalizationMetrics:
    """Metrics of maps for the true class: MaxBoxAccV2, MaxBoxAcc, PxAP, and a centred box.

    `thorough` also evaluates masks and the map of the predicted class; without it only what chooses
    a threshold. With a `threshold`, `ious` has the IoU of each image's largest contour at it, else
    at every threshold.
    """

    def __init__(
        self,
        interval: float,
        bin_width: float = 1.0,
        resamples: int = 0,
        threshold: float | None = None,
        thorough: bool = True,
    ) -> None:
        self.all_contours = BoxAccuracy(interval, 2, resamples)
        self.largest_contour = KnownOverlaps(interval, 1, resamples)
        self.centred_box = CentredBox(interval, 2, resamples)
        self.predicted_class = BoxAccuracy(interval, 2)
        self.pixels = PixelPrecision(bin_width)
        self.threshold, self.thorough = threshold, thorough
        self.positions: list[int] = []  # of the images with boxes
        self.ious: list[Array] = []
        self.images = self.top1 = self.top5 = 0  # images, and those classified correctly
        self.without_truth = 0
        self.bad: list[str] = []

    def run(
        self,
        predictor: MapPredictor,
        dataset: Dataset,
        classes: Tensor,
        progress: Progress | None = None,
    ) -> LocalizationMetrics:
        """Add a data set; `classes` (n,) are the model's indices of the images' classes."""
        for batch in predictor.iterate(dataset, classes):
            self.bad += [message for _, message in batch.bad]
            if batch.positions:
                self._add(predictor, dataset, batch, classes[batch.positions])
            if progress:
                progress(len(batch.positions) + len(batch.bad))
        return self

    def _add(
        self, predictor: MapPredictor, dataset: Dataset, batch: MapBatch, classes: Tensor
    ) -> None:
        maps, finite = predictor.scores(batch.maps), batch.finite()
        ranks = None
        if batch.logits is not None:
            ranks = np.asarray(class_ranks(batch.logits, classes))
        boxed, boxes, overlaps = list[int](), list[Array](), list[Array]()
        for i, position in enumerate(batch.positions):
            name, size = str(dataset.path(position)), batch.sizes[i]
            if not finite[i]:
                self.bad.append(f"{name}: its features are NaN or infinite")
                continue
            messages = len(self.bad)
            useful = self.thorough and self._add_mask(maps[i], dataset, position, size, name)
            try:
                truth = boxes_of(dataset, position, size)
                if len(truth):
                    overlaps.append(self.largest_contour.overlaps(maps[i], truth, size, name))
                    self._add_iou(position, overlaps[-1])
                    boxed.append(i)
                    boxes.append(truth)
                    useful = True
            except ValueError as error:
                self.bad.append(str(error))
            if useful:
                self.images += 1
                if ranks is not None:
                    self.top1 += int(ranks[i] < 1)
                    self.top5 += int(ranks[i] < 5)
            elif len(self.bad) == messages:  # neither a box nor a mask
                self.without_truth += 1
        if not boxed:
            return
        names = [str(dataset.path(batch.positions[i])) for i in boxed]
        columns: tuple[Any, ...] = (boxes, [batch.sizes[i] for i in boxed])
        columns += (None if ranks is None else ranks[boxed], names)
        self.all_contours.add(maps[boxed], *columns)
        self.largest_contour.add(overlaps, *columns)
        self.centred_box.add(maps[boxed], *columns)
        if self.thorough and batch.logits is not None:
            if batch.predicted_class_maps is not batch.maps:
                maps = predictor.scores(batch.predicted_class_maps)
            self.predicted_class.add(maps[boxed], *columns)

    def _add_iou(self, position: int, overlaps: Array) -> None:
        """Store the IoU at the threshold; without one at each, as two bytes."""
        if self.threshold is not None:
            thresholds = self.largest_contour.thresholds
            overlaps = overlaps[np.abs(thresholds - self.threshold).argmin()]
        self.positions.append(position)
        self.ious.append(np.asarray(overlaps, np.float16))

    def _add_mask(
        self,
        score_map: Array,
        dataset: Dataset,
        position: int,
        size: tuple[int, int],
        name: str,
    ) -> bool:
        """Add the pixels of an image; return whether it has a mask of its object."""
        if dataset.mask_codes.startswith("classes"):  # of a scene, not of the image's object
            return False
        try:
            mask = mask_of(dataset, position, size)
            if mask is not None:
                self.pixels.add(score_map, resize_mask(mask, score_map.shape), name)
                return True
        except BadImage as error:
            self.bad.append(str(error))
        return False

    def best_threshold(self) -> float:
        """Return the middle of the longest run of thresholds with the most right boxes at IoU 0.5.

        It is the safest one to use: the metric's own is the lowest of them, often 0, at which the
        box of an image unlike these is all of it.
        """
        accuracy = self.largest_contour
        curve = accuracy.curve()[accuracy.deltas.index(0.5)]
        best = np.diff(curve == curve.max(), prepend=False, append=False)
        edges = np.flatnonzero(best)  # starts and ends of runs, in turn
        starts, ends = edges[::2], edges[1::2]
        longest = int((ends - starts).argmax())
        return float(accuracy.thresholds[(starts[longest] + ends[longest] - 1) // 2])

    def scores(self, chosen_on: LocalizationMetrics | None = None) -> dict[str, Any]:
        """Return scores in percent, at the thresholds of source images or else at the best ones."""
        source = chosen_on or self
        scores = {
            "max_box_acc_v2": _box_score(self.all_contours, source.all_contours),
            "max_box_acc": _box_score(self.largest_contour, source.largest_contour),
        }
        if self.predicted_class.count:  # at the same thresholds, which do not depend on the class
            thresholds = source.all_contours.result().thresholds
            scores["predicted_class"] = {"score": 100 * self.predicted_class.at(thresholds).score}
        box = _box_score(self.centred_box, source.centred_box)
        sides = [round(1 - t, 4) for t in box.pop("thresholds")]
        return {**scores, "centred_box": {**box, "sides": sides}}

    def pxap(self) -> float | None:
        """Return PxAP in percent, None if no mask has an object."""
        return 100 * self.pixels.result() if self.pixels.pixels[1].any() else None


def _box_score(accuracy: BoxAccuracy, chosen_on: BoxAccuracy) -> dict[str, Any]:
    best, oracle = accuracy.at(chosen_on.result().thresholds), chosen_on is accuracy
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
            score = accuracy.result(kind) if oracle else accuracy.at(best.thresholds, kind)
            report[kind] = 100 * score.score
    return report
