"""MaxBoxAcc and MaxBoxAccV2: how often a thresholded score map gives the right box, at the best
threshold; and what a box in the middle of the image scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, islice, tee
from typing import Any, Literal, NamedTuple

import numpy as np

from .arrays import Array, on_all_cores
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
    """(k, 4) boxes in image pixels -> whole pixels of the map, truncated. Sizes are (w, h)."""
    array = as_boxes(boxes, name)
    if not len(array):
        raise ValueError(f"{name} has no true box: leave it out of the box accuracy")
    limits = np.array([*image_size, *image_size], np.float64)
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
        self.interval, self.version = interval, version
        self.deltas = {1: (0.5,), 2: (0.3, 0.5, 0.7)}[version]
        self.thresholds = np.arange(0, 1, interval)
        shape = (len(KINDS), len(self.deltas), len(self.thresholds))
        self.right = np.zeros(shape, np.int64)
        self.count, self.ranked = 0, 0
        self.resamples = Resamples(shape[1:], resamples)

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
        Top-5. Rows of the same name in sequence, such as the classes of one image, are drawn
        together by the bootstrap. Returns (n, T), the `overlaps` of each image.
        """
        added = [np.empty((0, len(self.thresholds)))]
        if ranks is None:
            ranks = ()
        remaining_ranks = iter(ranks)
        images = zip(score_maps, boxes, image_sizes, strict=True)
        names, image_names = tee(names or (f"image {i}" for i in count(self.count)))
        rows = ((*image, name) for image, name in zip(images, names, strict=False))
        for chunk in on_all_cores(self.overlaps, rows):
            overlaps = np.stack(chunk)  # (n, T)
            hits = overlaps[:, None] >= np.array(self.deltas)[:, None]  # (n, deltas, T)
            self.right[0] += hits.sum(0)
            places = np.array(list(islice(remaining_ranks, len(hits))), np.int64)
            self.right[1] += hits[: len(places)][places < 1].sum(0)
            self.right[2] += hits[: len(places)][places < 5].sum(0)
            self.ranked += len(places)
            self.count += len(hits)
            self.resamples.add(hits, islice(image_names, len(hits)))
            added.append(overlaps)
        return np.concatenate(added)

    def merge(self, other: BoxAccuracy) -> None:
        """Add what another process counted with the same settings, without resamples."""
        self.right += other.right
        self.count, self.ranked = self.count + other.count, self.ranked + other.ranked

    def curve(self, kind: Kind = "known") -> Array:
        """(deltas, thresholds): the share of images with a right box and, for Top-k, class."""
        if kind != "known" and self.ranked != self.count:
            raise ValueError(
                f"{kind} localization needs the rank of the true class of every image: add(..., ranks=...)"
            )
        return self.right[KINDS.index(kind)] / self.count

    def result(self, kind: Kind = "known") -> BoxScore:
        """The score at the best thresholds for these very images (the published oracle)."""
        curve = self.curve(kind)
        return self.at(self.thresholds[curve.argmax(1)], kind)

    def at(self, thresholds: Sequence[float] | Array, kind: Kind = "known") -> BoxScore:
        """The score at thresholds of a validation set's `result()`, one for each delta."""
        columns = self._columns(thresholds)
        values = self.curve(kind)[range(len(columns)), columns]
        thresholds = self.thresholds[columns]
        return BoxScore(float(values.mean()), tuple(values.tolist()), tuple(thresholds.tolist()))

    def bounds(self, thresholds: Sequence[float] | Array | None = None) -> tuple[float, float]:
        """A 95% bootstrap interval of the score; by default, each resample's best thresholds."""
        means = self.resamples.means()  # (resamples, deltas, thresholds)
        if thresholds is not None:
            columns = self._columns(thresholds)
            return percentiles(means[:, range(len(columns)), columns].mean(1), 0.95)
        return percentiles(means.max(2).mean(1), 0.95)

    def _columns(self, thresholds: Sequence[float] | Array) -> Array:
        """Return where these thresholds are, one for each delta."""
        requested = np.asarray(thresholds, np.float64)
        columns = np.abs(self.thresholds - requested[:, None]).argmin(1)
        exact = np.allclose(self.thresholds[columns], requested, rtol=0, atol=1e-9)
        if len(columns) != len(self.deltas) or not exact:
            raise ValueError(
                f"give one multiple of the interval {self.interval} for each of the IoUs "
                f"{self.deltas}, got {requested.tolist()}"
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
        """(T,): the IoU at each side; of the map only its size counts: both are rounded alike."""
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
