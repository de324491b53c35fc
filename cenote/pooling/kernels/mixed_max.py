"""Mean and maximum over mixed maps, never kept, for Metrix [Dissertation Sec. 2.4.2]."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .threads import compilable, in_threads

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
        largest, where = (_compiled if compilable(x) else _built)(x.detach(), b, c, lam)
        ctx.shape = x.shape
        ctx.save_for_backward(where, b, c, lam)
        return largest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, du: Tensor) -> tuple[Tensor | None, ...]:
        """Each entry goes back to the one position that it came from, in both maps."""
        where, b, c, lam = ctx.saved_tensors
        dx = du.new_zeros(ctx.shape)  # (B, N, D)
        if compilable(dx):
            from .compiled_loops import send_back

            in_threads(send_back, dx.shape[2], du, where, b, c, lam, dx)
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


def _built(x: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
    largest, where = _outputs(x, b)
    for rows in torch.arange(len(b), device=b.device).split(CHUNK):
        mixed = torch.lerp(x[c[rows]], x[b[rows]], lam[rows, None, None])
        largest[rows], positions = mixed.max(1)
        where[rows] = positions.int()
    return largest, where


def _compiled(x: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
    from .compiled_loops import take_largest

    rows = torch.cat([b, c])
    if ((rows < 0) | (rows >= len(x))).any():  # compiled code would read elsewhere
        raise IndexError(f"rows to mix are from 0 to {len(x) - 1}")
    largest, where = _outputs(x, b)
    in_threads(take_largest, len(b), x, b, c, lam, largest, where)
    return largest, where
