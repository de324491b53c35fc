"""Pixels against true masks: PxAP of score maps; mIoU, mAcc and aAcc of class maps from one confusion
matrix; attention masks against the objects of a segmented image (VOC12).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from .arrays import Array, numpy_array
from .score_maps import bin_edges, check_score_map

BACKGROUND, VOID = 0, 255


class SegmentationScore(NamedTuple):
    """Shares, 0 to 1. A class neither there nor predicted is NaN, and not in the means."""

    miou: float
    macc: float
    aacc: float
    iou: tuple[float, ...]
    accuracy: tuple[float, ...]


class Confusion:
    """Pixels by (true class, predicted class), without those whose truth is `ignore`."""

    def __init__(self, classes: int, ignore: int | None = VOID) -> None:
        self.classes, self.ignore, self.images = classes, ignore, 0
        self.pixels = np.zeros((classes, classes), np.int64)

    def add(self, predicted: Any, target: Any, name: str = "") -> None:
        """One image or a batch: two class maps of the same shape."""
        name = name or f"image {self.images}"
        guess, truth = numpy_array(predicted), numpy_array(target)
        if self.ignore is not None:
            counted = truth != self.ignore
            guess, truth = guess[counted], truth[counted]
        for what, values in (("target", truth), ("prediction", guess)):
            if values.size and not (values.min() >= 0 and values.max() < self.classes):
                raise ValueError(
                    f"{name}: the {what} has a class outside 0 to {self.classes - 1}, ignore={self.ignore}"
                )
        pairs = truth.ravel().astype(np.int64) * self.classes + guess.ravel().astype(np.int64)
        self.pixels += np.bincount(pairs, minlength=self.classes**2).reshape(self.pixels.shape)
        self.images += 1

    def merge(self, other: Confusion) -> None:
        """Add what another process counted with the same classes."""
        self.pixels += other.pixels
        self.images += other.images

    def result(self) -> SegmentationScore:
        right, true, guessed = np.diag(self.pixels), self.pixels.sum(1), self.pixels.sum(0)
        iou, accuracy = _ratio(right, true + guessed - right), _ratio(right, true)
        means = float(np.nanmean(iou)), float(np.nanmean(accuracy)), float(right.sum() / true.sum())
        return SegmentationScore(*means, tuple(iou.tolist()), tuple(accuracy.tolist()))


def segmentation_scores(
    predicted: Iterable[Any], targets: Iterable[Any], classes: int, ignore: int | None = VOID
) -> SegmentationScore:
    """mIoU, mAcc, aAcc over all pixels of all images."""
    confusion = Confusion(classes, ignore)
    for guess, truth in zip(predicted, targets, strict=True):
        confusion.add(guess, truth)
    return confusion.result()


def _ratio(part: Array, total: Array) -> Array:
    return np.divide(part, total, out=np.full(len(total), np.nan), where=total > 0)


def attention_jaccard(
    masks: Any, target: Any, compat: bool = False, name: str = "the image"
) -> float:
    """Masks (heads, H, W) of one image against its class map (H, W): per class the best head, mean
    over classes.

    Make the masks with `mass_mask(maps, 0.6)`. Void pixels (255) are left out; `compat` counts them
    as other classes, as the published script does.
    """
    heads, classes = numpy_array(masks).astype(bool), numpy_array(target)
    present = [value for value in np.unique(classes) if value not in (VOID, BACKGROUND)]
    if not present:
        raise ValueError(f"{name} has no object, only background or void pixels: leave it out")
    counted = compat | (classes != VOID)
    best = []
    for value in present:
        object_mask = classes == value  # never void
        shared = (heads & object_mask).sum((1, 2))
        union = ((heads | object_mask) & counted).sum((1, 2))
        best.append((shared / union).max())
    return float(np.mean(best))


class AttentionJaccard:
    """The mean of `attention_jaccard` over images: streaming."""

    def __init__(self, compat: bool = False) -> None:
        self.compat, self.total, self.count = compat, 0.0, 0

    def add(self, masks: Any, target: Any, name: str = "") -> float:
        value = attention_jaccard(masks, target, self.compat, name or f"image {self.count}")
        self.total, self.count = self.total + value, self.count + 1
        return value

    def result(self) -> float:
        return self.total / self.count


class PixelPrecision:
    """Histograms of the scores of positive and negative pixels: streaming and mergeable.

    Bin i holds edges[i] <= score < edges[i + 1]. The edges are 0, w, 2w, ... below 1, then 1, 2, 3:
    so a score of exactly 1 has a bin, and nothing else does beyond it.
    """

    def __init__(self, bin_width: float = 0.01) -> None:
        self.bin_width = bin_width
        self.edges = bin_edges(bin_width)
        self.pixels = np.zeros((2, len(self.edges) - 1), np.int64)  # of negatives and positives
        self.count = 0

    def add(self, score_map: Any, mask: Any, name: str = "") -> None:
        """One image: scores (H, W) in [0, 1] and a mask (H, W) of 0, 1 and 255 (ignored)."""
        name = name or f"image {self.count}"
        scores, truth = check_score_map(score_map, name), numpy_array(mask)
        if truth.shape != scores.shape:
            raise ValueError(f"{name}: the mask is {truth.shape}, the score map {scores.shape}")
        if truth.dtype == bool:
            truth = truth.astype(np.uint8)
        self.pixels += _histograms(scores, truth, self.edges, self.bin_width, name)
        self.count += 1

    def merge(self, other: PixelPrecision) -> None:
        """Add what another process counted with the same bins."""
        self.pixels += other.pixels
        self.count += other.count

    def curve(self) -> tuple[Array, Array]:
        """Precision (0 where nothing is predicted) and recall, from the highest bin down."""
        negatives, positives = self.pixels[:, ::-1].cumsum(1).astype(np.float64)
        if not positives[-1:].any():
            raise ValueError(f"the masks of {self.count} images have no positive pixel: no PxAP")
        predicted = positives + negatives
        precision = np.divide(positives, predicted, np.zeros_like(predicted), where=predicted > 0)
        return precision, positives / positives[-1]

    def result(self) -> float:
        """Sum of precision_i (recall_i - recall_{i-1}). Depends on the bin width: report it."""
        precision, recall = self.curve()
        return float((precision * np.diff(recall, prepend=0.0)).sum())


def pixel_average_precision(
    score_maps: Iterable[Any], masks: Iterable[Any], bin_width: float = 0.01
) -> float:
    """PxAP, 0 to 1, of score maps (H, W) in [0, 1] and masks of 0, 1 and 255 (ignored)."""
    precision = PixelPrecision(bin_width)
    for score_map, mask in zip(score_maps, masks, strict=True):
        precision.add(score_map, mask)
    return precision.result()


def _histograms(scores: Array, truth: Array, edges: Array, bin_width: float, name: str) -> Array:
    from .compiled_loops import count_pixels, edges_as

    pixels = np.zeros((2, len(edges) - 1), np.int64)
    bins = edges_as(scores.dtype, bin_width)
    if count_pixels(scores.ravel(), truth.ravel(), *bins, pixels):
        raise ValueError(
            f"{name}: a mask has 0, 1 and 255 (ignored), got {np.unique(truth)[:5].tolist()}"
        )
    return pixels
