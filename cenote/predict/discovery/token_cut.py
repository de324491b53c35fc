"""TokenCut: unsupervised object discovery using normalized cut (Wang et al. 2022)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...metrics.arrays import Array
from .base import (
    Grid,
    PatchFeatures,
    PatchObject,
    centred_keys,
    component,
    patch_array,
    patch_object,
    register,
)

EPS = 1e-5  # weight of an edge between dissimilar patches
TIE = 1e-6  # relative difference below which values of an eigenvector are equal
TOLERANCE = 1e-11  # of the eigenvalue, which is at most 1
SPARSE = 0.1  # share of similar pairs below which the graph is stored as a sparse matrix


@register("tokencut", "TokenCut", uses="keys")
def _discover(patches: PatchFeatures) -> list[PatchObject]:
    return [token_cut(centred_keys(patches), patches.grid)]


def token_cut(features: Any, grid: Grid, tau: float = 0.2) -> PatchObject:
    """Find the object: one side of the normalized cut of the patches by cosines of keys (N, D).

    If no cut is better than another (all patches similar, or none), the object is the whole image.
    """
    y = second_vector(graph(patch_array(features, grid), tau))
    if y is None:
        return patch_object(np.ones(grid, bool), 0)
    seed = first_largest(y)
    return patch_object(component((y > y.mean()).reshape(grid), seed), seed)


def graph(features: Array, tau: float) -> Array:
    """Return (N, N) bool: cosine > tau. A zero feature is similar to nothing, not even itself."""
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    unit = features / np.maximum(norms, 1e-12)
    return np.asarray(unit @ unit.T > tau)


def second_vector(near: Array) -> Array | None:
    """Solve (D - E) y = lambda D y for the second smallest lambda.

    E is 1 for similar patches, else EPS; D has its row sums. The largest absolute value of y is
    positive. None if every vector has this eigenvalue.

    With z = D^1/2 y it is the second largest eigenvalue of D^-1/2 E D^-1/2, whose first eigenvector
    D^1/2 1 is known and projected out; Lanczos starts from the same vector every time.
    """
    n = len(near)
    count = near.sum(1)
    pairs, loops = int(count.sum()), np.count_nonzero(near.diagonal())
    if n == 1 or pairs == n * n or (pairs == loops and loops in (0, n)):
        return None  # all are similar, or none
    d = count * (1 - EPS) + n * EPS
    s = 1 / np.sqrt(d)
    y: Array = s * _lanczos(near, s)
    return y if y[first_largest(np.abs(y))] > 0 else -y


def first_largest(values: Array) -> int:
    """Return the first index whose value equals the largest up to rounding."""
    return int(np.argmax(values >= values.max() - TIE * np.abs(values).max()))


def _lanczos(near: Array, s: Array) -> Array:
    """Return z by implicitly restarted Lanczos (ARPACK), the dense solution if it fails."""
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    n = len(s)
    edges: Any = near.astype(np.float64)
    if np.count_nonzero(near) < SPARSE * n * n:
        edges = csr_array(near, dtype=np.float64)
    first = 1 / s / np.linalg.norm(1 / s)  # D^1/2 1, whose eigenvalue 1 becomes -1

    def product(z: Array) -> Array:
        x = s * z
        w = s * ((1 - EPS) * (edges @ x) + EPS * x.sum())  # E = (1 - EPS) * edges + EPS
        return np.asarray(w - 2 * (first @ z) * first)

    start = np.random.default_rng(0).standard_normal(n)
    operator = LinearOperator((n, n), product, dtype=np.float64)
    try:
        vector: Array = eigsh(operator, 1, which="LA", v0=start, tol=TOLERANCE)[1][:, 0]
    except (ArpackError, TypeError):  # many eigenvalues that hardly differ, or n = 2
        return _dense(near, s)
    return vector


def _dense(near: Array, s: Array) -> Array:
    z: Array = np.linalg.eigh(s[:, None] * np.where(near, 1.0, EPS) * s)[1][:, -2]
    return z
