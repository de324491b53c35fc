"""Mean and maximum over mixed maps, never kept, for Metrix [Dissertation Sec. 2.4.2]."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...compiled import available, compiled

Array = Any  # NumPy's, in compiled loops
CHUNK = 64  # mixed maps in memory at a time, where no code is compiled


def mixed_mean(x: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
    """mean_j of lam x_bj + (1 - lam) x_cj, (M, D): as `mixed_max`, with a mean."""
    mean = x.mean(1)
    return torch.lerp(mean.index_select(0, c), mean.index_select(0, b), lam[:, None].to(mean.dtype))


def mixed_max(x: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
    """max_j of lam x_bj + (1 - lam) x_cj, (M, D), for maps x (B, N, D), rows b and c (M,) of them
    and shares lam (M,).

    Keeps, besides the result, one whole number for each of its entries: the position that it came
    from.
    """
    largest: Tensor = _MixedMax.apply(x, b, c, lam.to(x.dtype))
    return largest


class _MixedMax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
        largest, where = (_compiled if _compilable(x) else _built)(x.detach(), b, c, lam)
        ctx.shape = x.shape
        ctx.save_for_backward(where, b, c, lam)
        return largest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, du: Tensor) -> tuple[Tensor | None, ...]:
        """Each entry goes back to the one position that it came from, in both maps."""
        where, b, c, lam = ctx.saved_tensors
        dx = du.new_zeros(ctx.shape)  # (B, N, D)
        if _compilable(dx):
            arrays = [t.contiguous().numpy() for t in (du, where, b, c, lam, dx)]
            _shared(_send_back, arrays, dx.shape[2])
            return dx, None, None, None
        flat, n = dx.flatten(0, 1), dx.shape[1]
        for rows in torch.arange(len(b), device=b.device).split(CHUNK):
            at, g, share = where[rows].long(), du[rows], lam[rows, None]
            flat.scatter_add_(0, b[rows, None] * n + at, share * g)
            flat.scatter_add_(0, c[rows, None] * n + at, (1 - share) * g)
        return dx, None, None, None


def _outputs(x: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Room for the largest values (M, D), and for their positions."""
    shape = (len(b), x.shape[2])
    return x.new_empty(shape), b.new_empty(shape, dtype=torch.int32)


def _compilable(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and available()


def _built(x: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
    largest, where = _outputs(x, b)
    for rows in torch.arange(len(b), device=b.device).split(CHUNK):
        mixed = torch.lerp(x[c[rows]], x[b[rows]], lam[rows, None, None])
        largest[rows], positions = mixed.max(1)
        where[rows] = positions.int()
    return largest, where


def _compiled(x: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
    rows = torch.cat([b, c])
    if ((rows < 0) | (rows >= len(x))).any():  # compiled code would read elsewhere
        raise IndexError(f"rows to mix are from 0 to {len(x) - 1}")
    largest, where = _outputs(x, b)
    _shared(_take_largest, [t.contiguous().numpy() for t in (x, b, c, lam, largest, where)], len(b))
    return largest, where


def _shared(loop: Any, arrays: list[Any], count: int) -> None:
    """loop(*arrays, first, last) over `count` things, a part on each thread."""
    fast = _fast(loop)
    threads = max(min(torch.get_num_threads(), count), 1)
    ends = [count * k // threads for k in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(fast, *arrays, *bounds) for bounds in pairwise(ends)]:
            future.result()


@cache
def _fast(loop: Any) -> Any:
    """Compiled when it is first asked for: a pool needs torch alone."""
    return compiled(loop)


def _take_largest(
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


def _send_back(
    du: Array, where: Array, b: Array, c: Array, lam: Array, dx: Array, first: int, last: int
) -> None:
    """The gradients of channels `first` to `last`: no two threads share a channel."""
    for m in range(len(b)):
        share, dx_b, dx_c = lam[m], dx[b[m]], dx[c[m]]
        for d in range(first, last):
            j = where[m, d]
            dx_b[j, d] += share * du[m, d]
            dx_c[j, d] += (1 - share) * du[m, d]
