"""Histograms of positive and negative scores without sorting. Needs numba."""

from __future__ import annotations

import numpy as np

from .arrays import Array
from .compiled import compiled
from .sweep import unsigned


def in_kind_of(scores: Array, edges: Array) -> Array:
    """The edges as the scores' own floats, rounded up: every score falls where it did, and half as much is read."""
    if scores.dtype != np.float32:
        return edges
    rounded = edges.astype(np.float32)
    return np.where(rounded < edges, np.nextafter(rounded, np.float32(np.inf)), rounded)


@compiled
def count_pixels(scores: Array, truth: Array, edges: Array, bins_per_unit: float, pixels: Array) -> bool:
    """Add scores in [0, 1] to pixels[truth]; true if a mask value is none of 0, 1 and 255. Edges from `in_kind_of`."""
    count, bins, last = len(scores), len(edges) - 1, np.int32(len(edges) - 3)  # the last bin is that of a score of 1
    where, wrong = np.empty(count, np.int32), 0
    # Short loops of one kind of work each: the compiler makes vectors of them.
    for i in range(count):
        # The product and the edges are rounded, by less than a thousandth of a bin: this is the bin, or one less.
        where[i] = np.int32(np.float64(scores[i]) * bins_per_unit - 0.001)
    for i in range(count):
        k = unsigned(where[i])
        k = np.int32(k) + np.int32(scores[i] >= edges[k + unsigned(1)])
        where[i] = last if scores[i] == 1 else k  # there may be an edge just below 1
    for i in range(count):
        value = truth[i]
        wrong += (value != 0) & (value != 1) & (value != 255)
        where[i] += np.int32(bins) * (np.int32(value == 1) + np.int32(2) * np.int32(value == 255))
    # Neighbouring pixels fall into the same bin: four histograms in turn, or each would wait for the one before it.
    turns = np.zeros((4, 3 * bins), np.int32)
    a, b, c, d = turns[0], turns[1], turns[2], turns[3]
    fours = count // 4 * 4
    for i in range(0, fours, 4):
        a[unsigned(where[i])] += 1
        b[unsigned(where[i + 1])] += 1
        c[unsigned(where[i + 2])] += 1
        d[unsigned(where[i + 3])] += 1
    for i in range(fours, count):
        a[where[i]] += 1
    for kind in range(2):
        for k in range(bins):
            pixels[kind, k] += turns[:, kind * bins + k].sum()
    return wrong > 0
