"""The loops of `mixed_max`. Needs numba: imported only where it is there."""

from __future__ import annotations

from typing import Any

from ..compiled import compiled

Array = Any


@compiled
def take_largest(
    x: Array, b: Array, c: Array, lam: Array, largest: Array, where: Array, first: int, last: int
) -> None:  # fmt: skip
    """Of mixtures from `first` to `last`, channel by channel: the largest value, and its position."""
    positions, channels = x.shape[1], x.shape[2]
    for m in range(first, last):
        share, value, place = lam[m], largest[m], where[m]
        for j in range(positions):
            one, other = x[b[m], j], x[c[m], j]
            for d in range(channels):
                v = other[d] + share * (one[d] - other[d])
                more = j == 0 or v > value[d] or v != v  # of equals the first, and any NaN stays, as torch has it
                value[d] = v if more else value[d]
                place[d] = j if more else place[d]


@compiled
def send_back(du: Array, where: Array, b: Array, c: Array, lam: Array, dx: Array, first: int, last: int) -> None:
    """The gradients of channels from `first` to `last`: threads that share out channels never meet."""
    for m in range(len(b)):
        share, one, other = lam[m], dx[b[m]], dx[c[m]]
        for d in range(first, last):
            j = where[m, d]
            one[j, d] += share * du[m, d]
            other[j, d] += (1 - share) * du[m, d]
