"""mIoU, mAcc and aAcc of predicted class maps, from one confusion matrix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from .arrays import Array, numpy_array, side_by_side


class SegmentationScore(NamedTuple):
    """Shares, 0 to 1. A class that neither is there nor is predicted is NaN in the lists and left
    out of the means.
    """

    miou: float
    macc: float
    aacc: float
    iou: tuple[float, ...]
    accuracy: tuple[float, ...]


class Confusion:
    """Pixels by (true class, predicted class): streaming and mergeable. Pixels whose truth is
    `ignore` do not count.
    """

    def __init__(self, classes: int, ignore: int | None = 255) -> None:
        if classes < 1:
            raise ValueError(f"at least one class, got {classes}")
        self.classes, self.ignore, self.images = classes, ignore, 0
        self.pixels = np.zeros((classes, classes), np.int64)

    def add(self, predicted: Any, target: Any, name: str = "") -> None:
        """One image or a batch: two class maps of the same shape."""
        name = name or f"image {self.images}"
        guess, truth = numpy_array(predicted), numpy_array(target)
        if guess.shape != truth.shape:
            raise ValueError(
                f"{name}: the prediction is {guess.shape}, the target {truth.shape}; upsample the logits"
            )
        if self.ignore is not None:
            counted = truth != self.ignore
            guess, truth = guess[counted], truth[counted]
        for what, values in (("target", truth), ("prediction", guess)):
            if values.size and not (values.min() >= 0 and values.max() < self.classes):
                raise ValueError(
                    f"{name}: the {what} has a class outside 0 to {self.classes - 1}, ignore={self.ignore}"
                )
        pairs = truth.ravel().astype(np.int64) * self.classes + guess.ravel().astype(np.int64)
        self.pixels += np.bincount(pairs, minlength=self.classes**2).reshape(
            self.classes, self.classes
        )
        self.images += 1

    def merge(self, other: Confusion) -> None:
        if (other.classes, other.ignore) != (self.classes, self.ignore):
            raise ValueError(
                "confusion matrices of different classes or ignore values do not add up"
            )
        self.pixels += other.pixels
        self.images += other.images

    def result(self) -> SegmentationScore:
        if not self.pixels.any():
            raise ValueError(f"no pixel to score in {self.images} images: all are ignored")
        right, true, guessed = np.diag(self.pixels), self.pixels.sum(1), self.pixels.sum(0)
        iou, accuracy = _ratio(right, true + guessed - right), _ratio(right, true)
        means = float(np.nanmean(iou)), float(np.nanmean(accuracy)), float(right.sum() / true.sum())
        return SegmentationScore(*means, tuple(iou.tolist()), tuple(accuracy.tolist()))


def segmentation_scores(predicted: Iterable[Any], targets: Iterable[Any], classes: int,
                        ignore: int | None = 255) -> SegmentationScore:  # fmt: skip
    """mIoU, mAcc, aAcc over all pixels of all images."""
    confusion = Confusion(classes, ignore)
    for guess, truth in side_by_side(predicted=predicted, targets=targets):
        confusion.add(guess, truth)
    return confusion.result()


def _ratio(part: Array, whole: Array) -> Array:
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
