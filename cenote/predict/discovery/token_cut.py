"""TokenCut (Wang et al., Self-supervised transformers for unsupervised object discovery using normalized cut, 2022)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...metrics.arrays import Array
from .objects import Found, Grid, component, found, patches

EPS = 1e-5  # the weight of an edge between patches that are not alike
TIE = 1e-6  # values of an eigenvector this near to each other, of its largest, are equal
STEPS, CHECK = 300, 4  # of Lanczos: at most; between two looks at the residual
TINY = 1e-11  # a residual that is nothing: eigenvalues are at most 1
SPARSE = 0.1  # share of pairs below which only they are stored


def token_cut(features: Any, grid: Grid, tau: float = 0.2, name: str = "the image") -> Found:
    """The object in a picture: one side of the normalized cut of its patches, by the cosines of their keys (N, D).

    Where no cut is better than another (all patches alike, or none), the object is the whole picture.
    """
    y = second_vector(graph(patches(features, grid, name), tau))
    if y is None:
        return found(np.ones(grid, bool), 0)
    seed = first_largest(y)
    return found(component((y > y.mean()).reshape(grid), seed), seed)


def graph(features: Array, tau: float) -> Array:
    """(N, N) bool: cosine > tau. A patch without features is like nothing, not even itself."""
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    unit = features / np.maximum(norms, 1e-12)
    return np.asarray(unit @ unit.T > tau)


def second_vector(near: Array) -> Array | None:
    """y of (D - E) y = lambda D y for the second smallest lambda; E is 1 where patches are near, else EPS; D its sums.

    Its largest absolute value is positive. None where the eigenvalue is that of every vector.

    With z = D^1/2 y that is the second largest eigenvalue of D^-1/2 E D^-1/2, whose first vector D^1/2 1 is known and
    taken out; the rest is Lanczos, from a start that is always the same.
    """
    n = len(near)
    count = near.sum(1)
    pairs, loops = int(count.sum()), np.count_nonzero(near.diagonal())
    if n == 1 or pairs == n * n or (pairs == loops and loops in (0, n)):
        return None  # all are near each other, or none
    d = count * (1 - EPS) + n * EPS
    s = 1 / np.sqrt(d)
    y: Array = s * _lanczos(near, s)
    return y if y[first_largest(np.abs(y))] > 0 else -y


def first_largest(values: Array) -> int:
    """The first of the values that rounding alone keeps from being the largest: twins have equal ones."""
    return int(np.argmax(values >= values.max() - TIE * np.abs(values).max()))


def _lanczos(near: Array, s: Array) -> Array:
    """The steps of Lanczos, each vector made orthogonal to all before it, until the residual is nothing."""
    from scipy.linalg import eigh_tridiagonal
    from scipy.sparse import csr_array

    n = len(s)
    edges = (
        csr_array(near, dtype=np.float64)
        if np.count_nonzero(near) < SPARSE * n * n
        else near.astype(np.float64)
    )
    steps = min(n - 1, STEPS)
    basis, a, b = np.empty((steps + 1, n)), np.empty(steps), np.empty(steps)
    basis[0] = 1 / s / np.linalg.norm(1 / s)  # D^1/2 1, which is out of the question
    z = _apart(np.random.default_rng(0).standard_normal(n), basis[:1])
    z /= np.linalg.norm(z)
    for j in range(steps):
        basis[j + 1] = z
        x = s * z
        w = s * (
            (1 - EPS) * (edges @ x) + EPS * x.sum()
        )  # E is the edges times 1 - EPS, and EPS everywhere
        a[j] = z @ w
        w = _apart(w, basis[: j + 2])
        b[j] = np.linalg.norm(w)
        last = j == n - 2 or b[j] < TINY  # nothing is left to look at
        if last or j % CHECK == CHECK - 1:
            ritz = eigh_tridiagonal(a[: j + 1], b[:j], select="i", select_range=(j, j))[1][:, 0]
            if last or b[j] * abs(ritz[-1]) < TINY:
                found: Array = ritz @ basis[1 : j + 2]
                return found
        z = w / b[j]
    return _dense(near, s)  # many eigenvalues that hardly differ


def _apart(z: Array, basis: Array) -> Array:
    """What of z the rows of the basis do not hold; twice, as rounding leaves some of it."""
    for _ in range(2):
        z = z - (basis @ z) @ basis
    return z


def _dense(near: Array, s: Array) -> Array:
    z: Array = np.linalg.eigh(s[:, None] * np.where(near, 1.0, EPS) * s)[1][:, -2]
    return z
