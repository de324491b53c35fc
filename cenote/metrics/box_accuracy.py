"""MaxBoxAcc and MaxBoxAccV2: how often a thresholded score map gives the right box, at the best
threshold; and what a box in the middle of the image scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from .arrays import Array, numpy_array, on_all_cores, side_by_side
from .boxes import as_boxes, box_iou
from .contours import contour_overlaps
from .intervals import Resamples, percentiles
from .score_maps import check_score_map, quantise

Kind = Literal["known", "top1", "top5"]
KINDS: tuple[Kind, ...] = ("known", "top1", "top5")


class BoxScore(NamedTuple):
    """Shares of images, 0 to 1. `score` is the mean of `per_iou`."""

    score: float
    per_iou: tuple[float, ...]  # one for each delta: 0.3, 0.5, 0.7 (version 2) or 0.5 (version 1)
    thresholds: tuple[float, ...]  # the one each was reached with


def scale_boxes(
    boxes: Any, image_size: Sequence[float], map_size: tuple[int, int], name: str = "the image"
) -> Array:
    """(k, 4) boxes in image pixels -> whole pixels of the map, by truncation. Both sizes are
    (w, h).
    """
    if len(image_size) != 2 or not min(image_size) > 0:
        raise ValueError(f"{name}: an image size is (w, h) in pixels, got {tuple(image_size)}")
    array = as_boxes(boxes, name)
    if not len(array):
        raise ValueError(f"{name} has no true box: leave it out of the box accuracy")
    limits = np.array([*image_size, *image_size], np.float64)
    outside = array[
        ((array < -1) | (array > limits + 1)).any(1)
    ]  # they count from 0 or 1, and round
    if len(outside):
        size = "x".join(f"{side:g}" for side in image_size)
        raise ValueError(f"{name}: box {outside[0].tolist()} is outside the image of {size} pixels")
    return np.trunc(array * np.array([*map_size, *map_size], np.float64) / limits).astype(np.int64)


class BoxAccuracy:
    """Counts right boxes at all thresholds: streaming (memory does not grow with the images) and
    mergeable.

    At threshold t the foreground is `levels > int(t * levels.max())`, levels being the scores
    truncated to uint8: at most 255 differ, whatever the interval. An image is right at delta if any
    contour box has IoU >= delta with any true box. `resamples` > 0 keeps as many bootstrap
    resamples for `bounds`.
    """

    def __init__(self, interval: float = 0.01, version: int = 2, resamples: int = 0) -> None:
        if not 0 < interval <= 1:
            raise ValueError(f"interval is more than 0 and at most 1, got {interval}")
        if version not in (1, 2):
            raise ValueError(
                f"version is 1 (largest contour, IoU 0.5) or 2 (all contours, 0.3, 0.5, 0.7), got {version}"
            )
        self.interval, self.version = interval, version
        self.deltas = (0.5,) if version == 1 else (0.3, 0.5, 0.7)
        self.thresholds = np.arange(0, 1, interval)
        shape = (len(KINDS), len(self.deltas), len(self.thresholds))
        self.right = np.zeros(shape, np.int64)
        self.count, self.ranked = 0, 0
        self.resamples = Resamples(shape[1:], resamples) if resamples else None

    def overlaps(
        self, score_map: Any, boxes: Any, image_size: Sequence[float], name: str = "the image"
    ) -> Array:
        """(T,): the largest IoU of one image at each threshold. Adds nothing."""
        checked = check_score_map(score_map, name)
        truth = scale_boxes(boxes, image_size, (checked.shape[1], checked.shape[0]), name)
        levels = quantise(checked)
        best = contour_overlaps(levels, truth, self.version)
        return best[(self.thresholds * levels.max()).astype(np.int64)]

    def add(
        self,
        score_maps: Iterable[Any],
        boxes: Iterable[Any],
        image_sizes: Iterable[Any],
        ranks: Iterable[int] | None = None,
        names: Iterable[str] | None = None,
    ) -> Array:
        """Images one by one: score maps (H, W) in [0, 1] of their true class, true boxes in image
        pixels, sizes (w, h).

        `ranks`, the place of the true class among the predictions (0: first), are for Top-1 and
        Top-5. Returns (n, T), the `overlaps` of each image.
        """
        added = [np.empty((0, len(self.thresholds)))]
        columns = {"score_maps": score_maps, "boxes": boxes, "image_sizes": image_sizes}
        columns |= {} if names is None else {"names": names}
        columns |= {} if ranks is None else {"ranks": numpy_array(ranks)}

        def evaluate(i: int, row: tuple[Any, ...]) -> tuple[Array, Any]:
            image = dict(zip(columns, row, strict=True))
            name = image.get("names", f"image {i}")
            return self.overlaps(row[0], row[1], row[2], name), image.get("ranks")

        for pairs in on_all_cores(evaluate, enumerate(side_by_side(**columns), self.count)):
            overlaps = np.stack([best for best, _ in pairs])  # (n, T)
            hits = overlaps[:, None] >= np.array(self.deltas)[:, None]  # (n, deltas, T)
            self.right[0] += hits.sum(0)
            if ranks is not None:
                places = np.array([rank for _, rank in pairs])
                self.right[1] += hits[places < 1].sum(0)
                self.right[2] += hits[places < 5].sum(0)
                self.ranked += len(pairs)
            self.count += len(pairs)
            if self.resamples is not None:
                self.resamples.add(hits)
            added.append(overlaps)
        return np.concatenate(added)

    def merge(self, other: BoxAccuracy) -> None:
        """Add what another process counted."""
        settings, other_settings = (self.interval, self.version), (other.interval, other.version)
        if settings != other_settings or self.resamples or other.resamples:
            raise ValueError(
                f"box accuracies of (interval, version) {settings} and {other_settings}, or with "
                "resamples, do not add up"
            )
        self.right += other.right
        self.count, self.ranked = self.count + other.count, self.ranked + other.ranked

    def curve(self, kind: Kind = "known") -> Array:
        """(deltas, thresholds): the share of images with a right box; Top-1 and Top-5 ask for a
        right class too.
        """
        if not self.count:
            raise ValueError("box accuracy of no image: add some first")
        if kind != "known" and self.ranked != self.count:
            raise ValueError(
                f"{kind} localization needs the rank of the true class of every image: add(..., ranks=...)"
            )
        return self.right[KINDS.index(kind)] / self.count

    def result(self, kind: Kind = "known") -> BoxScore:
        """The score at the best threshold for each delta, chosen on these very images
        (the published oracle).
        """
        curve = self.curve(kind)
        return self.at(self.thresholds[curve.argmax(1)], kind)

    def at(self, thresholds: Sequence[float] | Array, kind: Kind = "known") -> BoxScore:
        """The score at given thresholds, one for each delta: those of a validation set's
        `result().thresholds`.
        """
        columns = self._columns(thresholds)
        values = self.curve(kind)[range(len(columns)), columns]
        thresholds = self.thresholds[columns]
        return BoxScore(float(values.mean()), tuple(values.tolist()), tuple(thresholds.tolist()))

    def bounds(self, thresholds: Sequence[float] | Array | None = None) -> tuple[float, float]:
        """A 95% bootstrap interval of the score; without thresholds, each resample chooses its own
        best ones.
        """
        if self.resamples is None:
            raise ValueError("an interval needs BoxAccuracy(..., resamples=1000)")
        means = self.resamples.means()  # (resamples, deltas, thresholds)
        if thresholds is not None:
            columns = self._columns(thresholds)
            return percentiles(means[:, range(len(columns)), columns].mean(1), 0.95)
        return percentiles(means.max(2).mean(1), 0.95)

    def _columns(self, thresholds: Sequence[float] | Array) -> Array:
        requested = np.asarray(thresholds, np.float64)
        if requested.shape != (len(self.deltas),):
            raise ValueError(
                f"give one threshold for each of the IoUs {self.deltas}, got {requested.tolist()}"
            )
        columns = np.abs(self.thresholds - requested[:, None]).argmin(1)
        if not np.allclose(self.thresholds[columns], requested, rtol=0, atol=1e-9):
            raise ValueError(
                f"thresholds {requested.tolist()} are not multiples of the interval {self.interval}"
            )
        return columns


class CentredBox(BoxAccuracy):
    """Box accuracy of a fixed box in the middle of every image, where photographers put their
    subject. Its "threshold" t is what its side lacks: 1 - t of the image's width and height. So it
    is chosen, on validation images or on the test's own, exactly as a threshold is.
    """

    def overlaps(
        self, score_map: Any, boxes: Any, image_size: Sequence[float], name: str = "the image"
    ) -> Array:
        """(T,): the IoU at each side; of the map only its size counts, so that both are rounded
        alike.
        """
        height, width = score_map.shape
        truth = scale_boxes(boxes, image_size, (width, height), name)
        size = np.array([width, height], np.float64)
        low = np.trunc(self.thresholds[:, None] / 2 * size)  # (T, 2)
        high = np.minimum(np.trunc((1 - self.thresholds[:, None] / 2) * size), size - 1)
        best: Array = box_iou(np.hstack([low, high]), truth, plus_one=True).max(1)
        return best


def max_box_acc(
    score_maps: Iterable[Any],
    boxes: Iterable[Any],
    image_sizes: Iterable[Any],
    interval: float = 0.01,
    version: int = 2,
) -> BoxScore:
    """MaxBoxAccV2 (or V1) of score maps (H, W) in [0, 1] at evaluation size; boxes in image pixels,
    sizes (w, h).

    Returns (score, per_iou, thresholds) as shares from 0 to 1. The score depends on the interval:
    report it.
    """
    accuracy = BoxAccuracy(interval, version)
    accuracy.add(score_maps, boxes, image_sizes)
    return accuracy.result()
