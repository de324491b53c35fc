"""Loops over images in machine code, of `simpool.py`, `gsp.py` and `mixed_max.py`.

Each function handles images (or channels) `first` to `last` from start to end, so that threads
need not wait for each other, and writes its results into the given arrays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...compiled import compiled, reordered

Array = Any  # NumPy's
CLOSEST = 1e-6  # distance of a token on its prototype, where the norm has no slope


@reordered
def simpool_forward(
    x: Array,  # (B, N, D)
    t: Array,  # (B, D), W_K^T q / sqrt d
    weight: Array,
    bias: Array,
    eps: float,
    gamma: float,
    lift: bool,
    a: Array,  # out: (B, N)
    z: Array,  # out: (B, D)
    mean: Array,  # out: (B, N), as rstd
    rstd: Array,
    floor: Array,  # out: (B,)
    first: int,
    last: int,
) -> None:
    _, n, dim = x.shape
    v, power, lowest = np.empty_like(weight), np.empty_like(weight), np.empty_like(weight)
    for i in range(first, last):
        lowest[:] = np.inf
        for j in range(n):
            mean[i, j], rstd[i, j] = _moments(x[i, j], eps)
            _normalize(x[i, j], mean[i, j], rstd[i, j], weight, bias, v)
            score = x.dtype.type(0)
            for d in range(dim):
                score += t[i, d] * v[d]  # [SimPool Eq. 14]
                lowest[d] = min(lowest[d], v[d])
            a[i, j] = score
        _softmax(a[i])  # [SimPool Eq. 15]
        floor[i] = lowest.min() if lift else 0
        z[i] = 0
        for j in range(n):
            _normalize(x[i, j], mean[i, j], rstd[i, j], weight, bias, v)
            v -= floor[i]  # [SimPool Eq. 16]
            _power(v, gamma - 1, power)
            for d in range(dim):
                z[i, d] += a[i, j] * v[d] * power[d]  # [SimPool Eq. 17]


@reordered
def simpool_backward(
    x: Array,
    t: Array,
    weight: Array,
    bias: Array,
    gamma: float,
    lift: bool,
    a: Array,
    mean: Array,
    rstd: Array,
    floor: Array,
    dz: Array,  # (B, D)
    da: Array,  # (B, N), overwritten
    dx: Array,  # out: (B, N, D), or empty: not wanted
    dt: Array,  # out: (B, D), as dweight and dbias
    dweight: Array,
    dbias: Array,
    first: int,
    last: int,
) -> None:
    _, n, dim = x.shape
    zero, factor = x.dtype.type(0), x.dtype.type(gamma)
    v, power, dv = np.empty_like(weight), np.empty_like(weight), np.empty_like(weight)
    for i in range(first, last):
        expected, slopes, ties = 0.0, zero, 0
        for j in range(n):
            _normalize(x[i, j], mean[i, j], rstd[i, j], weight, bias, v)
            v -= floor[i]
            _power(v, gamma - 1, power)
            dot, slope = zero, zero
            for d in range(dim):
                dot += dz[i, d] * power[d] * v[d]
                slope += dz[i, d] * power[d]
                ties += v[d] == 0
            da[i, j] += dot
            expected += a[i, j] * da[i, j]
            slopes += a[i, j] * slope
        # The floor is the image's smallest element, which gets what all the others lose.
        share = x.dtype.type(factor * slopes / ties) if lift else zero
        dt[i], dweight[i], dbias[i] = 0, 0, 0
        for j in range(n):
            _normalize(x[i, j], mean[i, j], rstd[i, j], weight, bias, v)
            v -= floor[i]
            _power(v, gamma - 1, power)
            ds = x.dtype.type(a[i, j] * (da[i, j] - expected))
            along, total = zero, zero
            for d in range(dim):
                dv[d] = a[i, j] * factor * dz[i, d] * power[d] + ds * t[i, d]
                dv[d] -= share if v[d] == 0 else zero
                v[d] = (x[i, j, d] - mean[i, j]) * rstd[i, j]
            for d in range(dim):
                dt[i, d] += ds * v[d] * weight[d]  # ds sums to zero: bias and floor add nothing
                dweight[i, d] += dv[d] * v[d]
                dbias[i, d] += dv[d]
            for d in range(dim):
                total += dv[d] * weight[d]
                along += dv[d] * weight[d] * v[d]
            total, along = x.dtype.type(total / dim), x.dtype.type(along / dim)
            if dx.size:
                for d in range(dim):  # LayerNorm's: less the mean, and the part along the row
                    dx[i, j, d] = rstd[i, j] * (dv[d] * weight[d] - total - v[d] * along)


@reordered
def gsp_forward(
    x: Array,  # (B, N, D)
    dots: Array,  # (B, N, m), of tokens and prototypes
    squares: Array,  # (m,), of the prototypes' norms
    eps: float,
    energy: Array,  # out: (B, N), squares of the tokens' norms
    s: Array,  # out: (B, N), logsumexp_i(-eps c_ij)
    first: int,
    last: int,
) -> None:
    c = np.empty_like(squares)
    for i in range(first, last):
        for j in range(x.shape[1]):
            square = x.dtype.type(0)
            for d in range(x.shape[2]):
                square += x[i, j, d] * x[i, j, d]
            energy[i, j] = square
            _distances(square, dots[i, j], squares, c)
            nearest, total = c.min(), x.dtype.type(0)
            for k in range(len(c)):
                total += math.exp(x.dtype.type(eps) * (nearest - c[k]))
            s[i, j] = math.log(total) - eps * nearest


@reordered
def gsp_backward(
    x: Array,
    dots: Array,
    squares: Array,
    eps: float,
    energy: Array,
    s: Array,
    p: Array,  # (B, N)
    du: Array,  # (B, D)
    ds: Array,  # (B, N)
    ddots: Array,  # out: (B, N, m)
    dsquares: Array,  # out: (B, m)
    dx: Array,  # out: (B, N, D) without its part through dots, or empty: not wanted
    first: int,
    last: int,
) -> None:
    c, one = np.empty_like(squares), x.dtype.type(1)
    for i in range(first, last):
        dsquares[i] = 0
        for j in range(x.shape[1]):
            _distances(energy[i, j], dots[i, j], squares, c)
            # dL/d(c^2): softmax of the logsumexp, times -eps, times dc/d(c^2) = 1 / 2c
            factor = x.dtype.type(-eps / 2) * ds[i, j]
            clip = one / math.sqrt(max(energy[i, j], one))
            total, outside = x.dtype.type(0), x.dtype.type(0)
            for k in range(len(c)):
                share = math.exp(-s[i, j] - x.dtype.type(eps) * c[k])
                slope = factor * share / c[k] if c[k] > CLOSEST else x.dtype.type(0)
                dsquares[i, k] += slope
                total += slope
                outside += slope * dots[i, j, k]
                ddots[i, j, k] = -2 * clip * slope
            if dx.size:
                # c^2 = ‖x‖^2 + ‖w‖^2 - 2 x.w inside the unit ball; outside, 1 + ‖w‖^2 - 2 x.w / ‖x‖
                along = 2 * (total if energy[i, j] < 1 else outside * clip**3)
                for d in range(x.shape[2]):
                    dx[i, j, d] = along * x[i, j, d] + p[i, j] * du[i, d]


@compiled
def take_largest(
    x: Array, b: Array, c: Array, lam: Array, largest: Array, where: Array, first: int, last: int
) -> None:
    """Of mixtures `first` to `last`, channel by channel: the largest value, and its position."""
    positions, channels = x.shape[1], x.shape[2]
    for m in range(first, last):
        share, value, place = lam[m], largest[m], where[m]
        for j in range(positions):
            x_b, x_c = x[b[m], j], x[c[m], j]
            for d in range(channels):
                v = x_c[d] + share * (x_b[d] - x_c[d])
                # Ties keep the lower position and any NaN stays, as torch has it.
                larger = j == 0 or v > value[d] or v != v
                value[d] = v if larger else value[d]
                place[d] = j if larger else place[d]


@compiled
def send_back(
    du: Array, where: Array, b: Array, c: Array, lam: Array, dx: Array, first: int, last: int
) -> None:
    """The gradients of channels `first` to `last`: no two threads share a channel."""
    for m in range(len(b)):
        share, dx_b, dx_c = lam[m], dx[b[m]], dx[c[m]]
        for d in range(first, last):
            j = where[m, d]
            dx_b[j, d] += share * du[m, d]
            dx_c[j, d] += (1 - share) * du[m, d]


@reordered
def _distances(energy: float, dots: Array, squares: Array, c: Array) -> None:
    """Distances of a token, clipped to norm one, to the prototypes: `costs` of gsp.py."""
    clip = dots.dtype.type(1) / math.sqrt(max(energy, dots.dtype.type(1)))
    clipped, closest = energy * clip * clip, dots.dtype.type(CLOSEST**2)
    for k in range(len(c)):
        c[k] = math.sqrt(max(clipped + squares[k] - 2 * clip * dots[k], closest))


@reordered
def _moments(row: Array, eps: float) -> tuple[float, float]:
    """Mean, and the inverse of the standard deviation."""
    mean, square = row.dtype.type(0), row.dtype.type(0)
    for d in range(len(row)):  # `for value in row` is not vectorized
        mean += row[d]
    mean /= row.dtype.type(len(row))
    for d in range(len(row)):
        square += (row[d] - mean) ** 2
    return mean, 1 / math.sqrt(square / len(row) + eps)


@compiled  # the same bits at every call: backward compares with the minimum of forward
def _normalize(
    row: Array, mean: float, rstd: float, weight: Array, bias: Array, normed: Array
) -> None:
    for d in range(len(row)):
        normed[d] = (row[d] - mean) * rstd * weight[d] + bias[d]


@compiled
def _power(v: Array, exponent: float, power: Array) -> None:
    """v^exponent for v >= 0 and the exponents 0, 1, 2 and 0.25, which need no `pow`."""
    if exponent == 0:
        power[:] = 1
    elif exponent == 1:
        power[:] = v
    elif exponent == 2:
        power[:] = v * v
    else:
        for d in range(len(v)):
            power[d] = math.sqrt(math.sqrt(v[d]))


@reordered
def _softmax(row: Array) -> None:
    largest, total = row.max(), row.dtype.type(0)
    for j in range(len(row)):
        row[j] = math.exp(row[j] - largest)
        total += row[j]
    row /= total
