"""SimPool on a CPU: each thread computes whole images in compiled loops.

Written with tensors, LN(X), V and V^gamma are three arrays of the size of X, each a trip to memory.
Here one token is normalized at a time, again in each pass over an image and in backward: what is
saved is X itself, its moments, the attention, and vectors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..framework import TINY, root
from .threads import in_threads

GAMMAS = (None, 1, 1.25, 2, 3)  # with others the loops need `pow`, which is slower than PyTorch's


def simpool_in_threads(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    gamma: float | None,
) -> tuple[Tensor, Tensor]:
    """X (B, N, D) -> u (B, D), a (B, N): Algorithm 2 with the minimum taken per image.

    `gamma` is one of GAMMAS.
    """
    u, a = _SimPool.apply(x, w_q, w_k, weight, bias, eps, gamma)
    return u, a


class _SimPool(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def forward(
        ctx: Any,
        x: Tensor,
        w_q: Tensor,
        w_k: Tensor,
        weight: Tensor,
        bias: Tensor,
        eps: float,
        gamma: float | None,
    ) -> tuple[Tensor, Tensor]:
        from .compiled_loops import simpool_forward

        b, n, d = x.shape
        u0 = x.mean(1)  # [SimPool Eq. 12]
        q = u0 @ w_q.T  # [SimPool Eq. 13]
        t = q @ w_k * d**-0.5  # K^T q = X'^T (W_K^T q): the keys [SimPool Eq. 14] never exist
        a, mean, rstd = (x.new_empty(b, n) for _ in range(3))
        z, floor = x.new_empty(b, d), x.new_empty(b)
        ctx.powers = 1.0 if gamma is None else gamma, gamma is not None
        results = a, z, mean, rstd, floor
        in_threads(simpool_forward, b, x, t, weight, bias, eps, *ctx.powers, *results)
        u = z if gamma is None else root(z, gamma)  # [SimPool Eq. 17]
        ctx.save_for_backward(x, w_q, w_k, weight, bias, u0, q, t, a, z, mean, rstd, floor)
        return u, a

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    @once_differentiable
    def backward(ctx: Any, du: Tensor, da: Tensor) -> tuple[Tensor | None, ...]:
        from .compiled_loops import simpool_backward

        x, w_q, w_k, weight, bias, u0, q, t, a, z, mean, rstd, floor = ctx.saved_tensors
        b, n, d = x.shape
        gamma, lift = ctx.powers
        dz = du
        if lift:
            dz = du * z.clamp_min(TINY).pow(1 / gamma - 1) / gamma
            dz = dz.masked_fill_(z <= TINY, 0)
        dx = x.new_empty(x.shape if ctx.needs_input_grad[0] else (0, 0, 0))
        dt, dweight, dbias = (torch.empty_like(t) for _ in range(3))
        saved = x, t, weight, bias, gamma, lift, a, mean, rstd, floor
        in_threads(simpool_backward, b, *saved, dz, da.clone(), dx, dt, dweight, dbias)
        dt.mul_(d**-0.5)
        dq = dt @ w_k.T
        if ctx.needs_input_grad[0]:
            dx.add_((dq @ w_q)[:, None], alpha=1 / n)
        else:
            dx = None
        return dx, dq.T @ u0, q.T @ dt, dweight.sum(0), dbias.sum(0), None, None
