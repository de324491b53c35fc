"""LOST (Siméoni et al., Localizing objects with self-supervised transformers and no labels, 2021)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .objects import Found, Grid, component, found, patches


def lost(features: Any, grid: Grid, k: int = 100, name: str = "the image") -> Found:
    """The object in a picture, of the keys (N, D) of its patches: what is like the patch that is least like others.

    The published program leaves the diagonal of A out of the degrees. That takes one from all of them, and changes
    nothing but the order of features that are zero.
    """
    if k < 1:
        raise ValueError(f"LOST grows from at least one patch, got k={k}")
    f = patches(features, grid, name)
    a = f @ f.T  # (N, N), not normalised
    degree = (a > 0).sum(1)
    order = np.argsort(degree, kind="stable")  # an object has fewer patches than what is around it
    seed, candidates = order[0], order[:k]
    like = candidates[a[seed, candidates] > 0]
    m = a[like].sum(0)  # real-valued rows, not counts: (N,)
    return found(component((m > 0).reshape(grid), int(seed)), int(seed))
