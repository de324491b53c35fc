"""GSP in closed form, its costs never kept: a block of images at a time, recomputed in backward."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .blocks import blocks

# 3-4 do at the papers' settings, 20 at eps = 2000; a step is a pass over (B, N) scalars.
NEWTON_STEPS = 24
CLOSEST = 1e-6  # distance of a token on its prototype, where the norm has no slope


def costs(x: Tensor, w: Tensor) -> Tensor:
    """c (B, N, m), the distance of x_j / max(1, ‖x_j‖) to prototype w_i, without a copy of x."""
    return _distances(_energy(x), x @ w.T, w)


def weights(costs: Tensor, mu: float, eps: float) -> Tensor:
    """p (B, N) from costs (B, N, m), by autograd: where the blocked form does not serve."""
    s = (-eps * costs).logsumexp(-1)
    b = solve(s.detach(), mu)
    # One more Newton step that autograd sees: b stays, and db/ds = -sigmoid'(s + b) / sum
    # sigmoid'(s + b).
    share = (s.detach() + b).sigmoid()
    slope = (share * (1 - share)).mean(1, keepdim=True).clamp_min(torch.finfo(s.dtype).tiny)
    b = b - ((s + b).sigmoid().mean(1, keepdim=True) - mu) / slope
    return (s + b).sigmoid() / (s.shape[1] * mu)


def gsp_blocked(x: Tensor, w: Tensor, mu: float, eps: float) -> tuple[Tensor, Tensor]:
    """X (B, N, D), clipped prototypes (m, D) -> u (B, D), p (B, N)."""
    u, p = _BlockedGSP.apply(x, w, mu, eps)
    return u, p


class _BlockedGSP(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def forward(ctx: Any, x: Tensor, w: Tensor, mu: float, eps: float) -> tuple[Tensor, Tensor]:
        s, dots, energy = x.new_empty(x.shape[:2]), x @ w.T, _energy(x)
        for i in blocks(dots):
            torch.logsumexp(_distances(energy[i], dots[i], w).mul_(-eps), -1, out=s[i])
        share = (s + solve(s, mu)).sigmoid()
        p = share / (x.shape[1] * mu)
        ctx.mu, ctx.eps = mu, eps
        ctx.save_for_backward(x, w, s, share, p, dots, energy)
        return (p[:, None] @ x).squeeze(1), p

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    @once_differentiable
    def backward(ctx: Any, du: Tensor, dp: Tensor) -> tuple[Tensor | None, ...]:
        x, w, s, share, p, dots, energy = ctx.saved_tensors
        dp = dp + (du[:, None] @ x.mT).squeeze(1)
        # Implicit differentiation of mean_j sigmoid(s_j + b) = mu.
        slope = share * (1 - share)
        total = slope.sum(1, keepdim=True).clamp_min(torch.finfo(s.dtype).tiny)
        ds = slope * (dp - (slope * dp).sum(1, keepdim=True) / total) / (x.shape[1] * ctx.mu)
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        dw, reach = torch.zeros_like(w), w.new_zeros(len(w))
        for i in blocks(dots):
            xi, y, c = x[i], dots[i], _distances(energy[i], dots[i], w)
            # dL/d(c^2): softmax of the logsumexp, times -eps, times dc/d(c^2) = 1 / 2c
            d2 = torch.sub(-s[i, :, None], c, alpha=ctx.eps).exp_()
            d2.mul_(ds[i, :, None] * (-ctx.eps / 2))
            d2.div_(c).masked_fill_(c <= CLOSEST, 0)
            reach += d2.sum((0, 1))
            clip = energy[i].clamp_min(1).rsqrt()
            if dx is not None:
                # c^2 = ‖x‖^2 + ‖w‖^2 - 2 x.w inside the unit ball; outside it, 1 + ‖w‖^2 - 2 x.w /
                # ‖x‖
                outside = (d2 * y).sum(-1, keepdim=True) * clip**3
                along = torch.where(energy[i] < 1, d2.sum(-1, keepdim=True), outside)
            d2.mul_(-2 * clip)  # now dL/d(x.w)
            dw.addmm_(d2.flatten(0, 1).T, xi.flatten(0, 1))
            if dx is not None:
                torch.bmm(d2, w.expand(len(d2), -1, -1), out=dx[i])
                dx[i].addcmul_(xi, along, value=2).addcmul_(p[i, :, None], du[i, None])
        return dx, dw.addcmul_(w, reach[:, None], value=2), None, None


def solve(s: Tensor, mu: float) -> Tensor:
    """b (B, 1) with mean_j sigmoid(s_j + b) = mu, by Newton on the logits of both sides.

    On the logits the equation is nearly linear far from the root, where the plain one is flat.
    Every root is between the offsets that bring the largest, and the smallest, s_j to logit(mu).
    """
    target = math.log(mu) - math.log1p(-mu)
    low, high = target - s.amax(1, keepdim=True), target - s.amin(1, keepdim=True)
    b = (low + high) / 2
    # Elsewhere, asking costs more than a step.
    can_stop = s.device.type == "cpu" and not torch.compiler.is_compiling()
    tolerance = 8 * torch.finfo(s.dtype).eps
    for _ in range(NEWTON_STEPS):
        share = (s + b).sigmoid()
        f, slope = share.mean(1, keepdim=True), (share * (1 - share)).mean(1, keepdim=True)
        # Inside the bracket mu / n <= f <= 1 - (1 - mu) / n.
        error = f.log() - (-f).log1p() - target
        low, high = torch.where(error <= 0, b, low), torch.where(error >= 0, b, high)
        step = b - error * f * (1 - f) / slope
        b = torch.where((step >= low) & (step <= high), step, (low + high) / 2)
        if can_stop and bool((error.abs() < tolerance).all()):
            break
    return b


def _energy(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True).square()


def _distances(energy: Tensor, dots: Tensor, w: Tensor) -> Tensor:
    """‖x_j / max(1, ‖x_j‖) - w_i‖ from ‖x_j‖^2 (B, N, 1) and x_j.w_i (B, N, m)."""
    clip = energy.clamp_min(1).rsqrt()
    squared = torch.addcmul(energy * clip.square() + w.square().sum(-1), dots, clip, value=-2)
    return squared.clamp_min(CLOSEST**2).sqrt()
