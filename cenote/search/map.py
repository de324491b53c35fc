"""The map of an index: its images at the first two principal components of their vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from .database import MomentSums
from .store import IndexedImage, Store

MAP_IMAGES = 5000  # on the map; a sample of a larger index
Point = tuple[float, float]


class IndexMap(NamedTuple):
    sample: list[IndexedImage]
    points: npt.NDArray[np.float64]  # (N, 2), each axis scaled to 0 to 1
    variance: float  # share of the variance of the vectors that is visible
    version: object  # of the index

    def rows_inside(self, region: Sequence[Point]) -> tuple[int, ...]:
        """Return the images of the map inside a polygon."""
        places = np.flatnonzero(points_inside(self.points, np.array(region, np.float64)))
        if not len(places):
            raise ValueError("no image is inside this region of the map: choose a larger one")
        return tuple(self.sample[place].row for place in places)


def draw_map(store: Store) -> IndexMap:
    """Project the vectors of a sample to their first two principal components."""
    sample, version = store.sample(MAP_IMAGES), store.version
    if not sample:
        raise ValueError("this index has no map: it is empty, or too large a part of Milvus")
    sums = MomentSums.zeros(store.dim)
    vectors = store.vectors(torch.tensor([row for row, _ in sample]))
    sums.add(vectors)
    _, mean, covariance = sums.moments()
    variances, axes = torch.linalg.eigh(covariance)  # ascending
    axes = axes[:, -2:].flip(1)
    axes *= axes.gather(0, axes.abs().argmax(0)[None]).sign()  # eigh leaves the signs open
    points = (vectors.double() - mean) @ axes  # (N, 2)
    low, high = points.aminmax(dim=0)
    points = (points - low) / (high - low).clamp(min=1e-12)
    share = float(variances[-2:].sum() / variances.sum().clamp(min=1e-12))
    return IndexMap(sample, points.round(decimals=4).numpy(), share, version)


def points_inside(
    points: npt.NDArray[np.float64], polygon: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Return (N,) bool: the point is inside the polygon (V, 2) by the even-odd rule, or on an edge.

    A ray to the right of a point inside crosses an odd number of edges.
    """
    x, y = points.T[:, :, None]  # (N, 1)
    (x0, y0), (x1, y1) = (
        polygon.T,
        np.roll(polygon, -1, axis=0).T,
    )  # (V,): from each corner to the next
    side = (x1 - x0) * (y - y0) - (x - x0) * (y1 - y0)  # (N, V), 0 on the line through the edge
    crosses = ((y0 > y) != (y1 > y)) & ((side > 0) == (y1 > y0))
    on_edge = (side == 0) & ((x0 - x) * (x1 - x) <= 0) & ((y0 - y) * (y1 - y) <= 0)
    return (crosses.sum(1) % 2 == 1) | on_edge.any(1)
