"""Histograms of positive and negative scores without sorting. Needs numba."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..compiled import compiled
from .arrays import Array
from .score_maps import bin_edges
from .sweep import unsigned

BLOCK = 4096  # pixels at a time: what is noted of them stays in the nearest cache
FINE = 4096  # bins beyond which float32 cannot tell to a thousandth of a bin where a score falls


@lru_cache(16)
def edges_as(kind: Any, bin_width: float) -> tuple[Array, Any, Any]:
    """What `count_pixels` asks for, for scores of this type of floats.

    The edges that a bin begins with, for negatives, positives and ignored pixels, rounded up: every
    score falls where it did, and half as much is read. Then the bins in one unit, and a thousandth
    of one.
    """
    edges = bin_edges(bin_width)
    real = np.float32 if kind == np.float32 and len(edges) <= FINE else np.float64
    rounded = edges.astype(real)
    rounded = np.where(rounded < edges, np.nextafter(rounded, real(np.inf)), rounded)
    return np.tile(rounded[:-1], 3), real(1 / bin_width), real(0.001)


@compiled
def count_pixels(
    scores: Array, truth: Array, edges: Array, bins_per_unit: float, little: float, pixels: Array
) -> bool:
    """Add scores in [0, 1] to pixels[truth]; true if a mask value is none of 0, 1 and 255. Edges
    from `edges_as`.
    """
    bins, wrong = len(edges) // 3, np.int32(0)
    below, where = np.int32(bins - 3), np.empty(BLOCK, np.int32)
    # Neighbouring pixels fall into the same bin: four histograms in turn, or each would wait for
    # the one before it.
    turns = np.zeros((4, 3 * bins), np.int32)
    a, b, c, d = turns[0], turns[1], turns[2], turns[3]
    for start in range(0, len(scores), BLOCK):
        values, mask = scores[start : start + BLOCK], truth[start : start + BLOCK]
        # Short loops of one kind of work each: the compiler makes vectors of them.
        for i in range(len(values)):
            # The product and the edges are rounded, by less than a thousandth of a bin: this is the
            # bin, or one less.
            near = np.int32(values[i] * bins_per_unit - little)
            where[i] = below if values[i] == 1 else near  # there may be an edge just below 1
        for i in range(len(values)):
            value = mask[i]
            wrong += np.int32((value != 0) & (value != 1) & (value != 255))
            where[i] += np.int32(bins) * (
                np.int32(value == 1) + np.int32(2) * np.int32(value == 255)
            )
        for i in range(len(values)):
            k = unsigned(where[i])
            where[i] = np.int32(k) + np.int32(values[i] >= edges[k + unsigned(1)])
        fours = len(values) // 4 * 4
        for i in range(0, fours, 4):
            a[unsigned(where[i])] += 1
            b[unsigned(where[i + 1])] += 1
            c[unsigned(where[i + 2])] += 1
            d[unsigned(where[i + 3])] += 1
        for i in range(fours, len(values)):
            a[where[i]] += 1
    for kind in range(2):
        for k in range(bins):
            pixels[kind, k] += turns[:, kind * bins + k].sum()
    return bool(wrong > 0)
