"""PxAP: the area under the precision-recall curve of all pixels of a data set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..compiled import available
from .arrays import Array, numpy_array
from .score_maps import bin_edges, check_score_map

IGNORE = 255


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
    if available():
        from .compiled_loops import count_pixels, edges_as

        pixels = np.zeros((2, len(edges) - 1), np.int64)
        bins = edges_as(scores.dtype, bin_width)
        wrong = count_pixels(scores.ravel(), truth.ravel(), *bins, pixels)
    else:
        pixels = np.stack([np.histogram(scores[truth == value], edges)[0] for value in (0, 1)])
        wrong = bool(((truth != 0) & (truth != 1) & (truth != IGNORE)).any())
    if wrong:
        raise ValueError(
            f"{name}: a mask has 0, 1 and 255 (ignored), got {np.unique(truth)[:5].tolist()}"
        )
    return pixels
