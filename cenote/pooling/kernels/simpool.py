"""SimPool on a CPU: the same function, walked a few images at a time so that every pass stays in
cache.

Written at once, LN(X), V and V^gamma are three arrays of the size of X, each a trip to memory and
fresh pages from the system. Here a block of images is normalised, attended, raised and summed in
one small buffer, and backward recomputes the block instead of having kept it: what is saved is X
itself, the attention, and vectors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..framework import TINY, raise_to, root
from .blocks import blocks


def simpool_blocked(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    gamma: float | None,
) -> tuple[Tensor, Tensor]:
    """X (B, N, D) -> u (B, D), a (B, N): Algorithm 2 with the minimum taken per image."""
    u, a = _BlockedSimPool.apply(x, w_q, w_k, weight, bias, eps, gamma)
    return u, a


class _BlockedSimPool(torch.autograd.Function):
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
        b, n, d = x.shape
        u0 = x.mean(1)  # [SimPool Eq. 12]
        q = u0 @ w_q.T  # [SimPool Eq. 13]
        t = q @ w_k * d**-0.5  # K^T q = X'^T (W_K^T q): the keys [SimPool Eq. 14] never exist
        a, z = x.new_empty(b, n), x.new_empty(b, d)
        mean, rstd, floor = x.new_empty(b, n, 1), x.new_empty(b, n, 1), x.new_zeros(b, 1, 1)
        for i in blocks(x):
            v, mean[i], rstd[i] = torch.native_layer_norm(x[i], [d], weight, bias, eps)
            torch.softmax(t[i, None] @ v.mT, -1, out=a[i, None])  # [SimPool Eq. 15]
            if gamma is not None:
                floor[i] = v.amin((1, 2), keepdim=True)
                v = _raise_(v.sub_(floor[i]), gamma)  # [SimPool Eq. 16]
            torch.bmm(a[i, None], v, out=z[i, None])
            del v  # before the next block's is made
        u = z if gamma is None else root(z, gamma)  # [SimPool Eq. 17]
        ctx.gamma, ctx.eps = gamma, eps
        ctx.save_for_backward(x, w_q, w_k, weight, bias, u0, q, t, a, z, mean, rstd, floor)
        return u, a

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    @once_differentiable
    def backward(ctx: Any, du: Tensor, da_out: Tensor) -> tuple[Tensor | None, ...]:
        x, w_q, w_k, weight, bias, u0, q, t, a, z, mean, rstd, floor = ctx.saved_tensors
        gamma, (_, n, d), frozen = ctx.gamma, x.shape, not ctx.needs_input_grad[0]
        dx = None if frozen else torch.empty_like(x)  # laid out as x: tokens or a map's view
        dt = torch.empty_like(t)
        dweight, dbias = torch.zeros_like(weight), torch.zeros_like(bias)
        if gamma is None:
            dbias += du.sum(0)  # a sums to one, ds to zero
        else:
            dz = du * z.clamp_min(TINY).pow(1 / gamma - 1) / gamma
            dz = dz.masked_fill_(z <= TINY, 0)[:, None]
        for i in blocks(x):
            xi, ai = x[i].contiguous(), a[i, None]
            if gamma is None:
                v = torch.native_layer_norm(xi, [d], None, None, ctx.eps)[0]
                rows = torch.stack([du[i], t[i]], 1)  # dL/dX' = [a ds]^T [du t] is of rank two
                scaled = rows * weight
                dots = scaled @ v.mT  # (b, 2, N)
                ds = _softmax_slope(ai, dots[:, :1] + da_out[i, None])
                weights = torch.cat([ai, ds], 1)
                pooled = weights @ v  # (b, 2, D)
                dweight += (rows * pooled).sum((0, 1))
                dt[i] = pooled[:, 1] * weight
                if dx is not None:
                    # LayerNorm's backward takes from each row its mean and its part along v.
                    v.mul_((weights * dots).sum(1)[..., None] / -d)
                    v.baddbmm_(weights.mT, scaled - scaled.mean(-1, keepdim=True))
                    dx[i] = v.mul_(rstd[i])
                del v
                continue
            v = torch.native_layer_norm(xi, [d], weight, bias, ctx.eps)[0].sub_(floor[i])
            ds = _softmax_slope(ai, dz[i] @ raise_to(v, gamma).mT + da_out[i, None])
            torch.bmm(ds, v, out=dt[i, None])  # the floor in v adds nothing: ds sums to zero
            dv = _slope(v, gamma).mul_(dz[i]).mul_(ai.mT)
            # The floor is the image's smallest element, which so gets what all the others lose.
            lowest = v == 0
            share = dv.sum((1, 2)) / lowest.sum((1, 2))
            where = lowest.nonzero(as_tuple=True)
            dv[where] -= share[where[0]]
            dv.baddbmm_(ds.mT, t[i, None])
            dxi, dw, db = torch.ops.aten.native_layer_norm_backward(
                dv, xi, [d], mean[i], rstd[i], weight, bias, [not frozen, True, True]
            )
            if dx is not None:
                dx[i] = dxi
            dweight += dw
            dbias += db
            del v, dv, dxi
        dt.mul_(d**-0.5)
        dq = dt @ w_k.T
        if dx is not None:
            dx.add_((dq @ w_q)[:, None], alpha=1 / n)
        return dx, dq.T @ u0, q.T @ dt, dweight, dbias, None, None


def _softmax_slope(a: Tensor, da: Tensor) -> Tensor:
    return a * (da - (a * da).sum(-1, keepdim=True))


def _raise_(v: Tensor, gamma: float) -> Tensor:
    """v^gamma for v >= 0, in place where the exponent allows."""
    if gamma == 2:
        return v.square_()
    return v.mul_(v.sqrt().sqrt_()) if gamma == 1.25 else v.pow_(gamma)


def _slope(v: Tensor, gamma: float) -> Tensor:
    """gamma v^(gamma - 1), zero at zero."""
    if gamma == 2:
        return v * 2
    if gamma == 1.25:
        return v.sqrt().sqrt_().mul_(1.25)
    return v.clamp_min(TINY).pow_(gamma - 1).mul_(gamma).masked_fill_(v <= TINY, 0)
