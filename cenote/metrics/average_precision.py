"""Average precision of one ranked list, in both definitions in use."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import numpy_array
from .rankings import trapezoid_ap

KINDS = ("standard", "trapezoid")


def average_precision(relevance: Any, kind: str = "standard") -> float:
    """`relevance` (N,): which images of the list, best first, are right; 0 where none is.

    standard: the mean over the right images of the precision at their place (one right image at
    place 2 gives 0.5). trapezoid: the mean of the precision before and at their place (0.25), as in
    landmark and domain conversion protocols.
    """
    right = numpy_array(relevance)
    if right.ndim != 1:
        raise ValueError(f"relevance is one list, best first, got {right.shape}")
    if right.dtype != bool and not np.isin(right, (0, 1)).all():
        raise ValueError("relevance is 0 or 1 for each place of the list")
    places = np.flatnonzero(right)
    return of_places(places, len(places), kind)


def of_places(places: Any, relevant: int, kind: str = "standard") -> float:
    """`places` are those (from 0, ascending) of the found among `relevant` images."""
    if kind not in KINDS:
        raise ValueError(f"no average precision '{kind}': {' or '.join(KINDS)}")
    if not relevant:
        return 0.0
    if kind == "trapezoid":
        return trapezoid_ap(places, relevant)
    ranks = numpy_array(places)
    return float((np.arange(1, len(ranks) + 1) / (ranks + 1)).sum() / relevant)
