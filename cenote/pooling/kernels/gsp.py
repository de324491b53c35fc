"""GSP in closed form. On a CPU each thread computes the costs of whole images, again in backward."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .threads import in_threads

# 3-4 do at the papers' settings, 20 at eps = 2000; a step is a pass over (B, N) scalars.
NEWTON_STEPS = 24
CLOSEST = 1e-6  # distance of a token on its prototype, where the norm has no slope


def costs(x: Tensor, w: Tensor) -> Tensor:
    """c (B, N, m), the distance of x_j / max(1, ‖x_j‖) to prototype w_i, without a copy of x."""
    energy = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square()
    clip = energy.clamp_min(1).rsqrt()
    squared = torch.addcmul(energy * clip.square() + w.square().sum(-1), x @ w.T, clip, value=-2)
    return squared.clamp_min(CLOSEST**2).sqrt()


def weights(costs: Tensor, mu: float, eps: float) -> Tensor:
    """p (B, N) from costs (B, N, m), by autograd: where compiled loops do not serve."""
    s = (-eps * costs).logsumexp(-1)
    b = solve(s.detach(), mu)
    # One more Newton step that autograd sees: b stays, and db/ds = -sigmoid'(s + b) / sum
    # sigmoid'(s + b).
    share = (s.detach() + b).sigmoid()
    slope = (share * (1 - share)).mean(1, keepdim=True).clamp_min(torch.finfo(s.dtype).tiny)
    b = b - ((s + b).sigmoid().mean(1, keepdim=True) - mu) / slope
    return (s + b).sigmoid() / (s.shape[1] * mu)


def gsp_in_threads(x: Tensor, w: Tensor, mu: float, eps: float) -> tuple[Tensor, Tensor]:
    """X (B, N, D), clipped prototypes (m, D) -> u (B, D), p (B, N)."""
    u, p = _GSP.apply(x, w, mu, eps)
    return u, p


class _GSP(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def forward(ctx: Any, x: Tensor, w: Tensor, mu: float, eps: float) -> tuple[Tensor, Tensor]:
        from .compiled_loops import gsp_forward

        dots, squares = x @ w.T, w.square().sum(-1)
        energy, s = x.new_empty(x.shape[:2]), x.new_empty(x.shape[:2])
        in_threads(gsp_forward, len(x), x, dots, squares, eps, energy, s)
        share = (s + solve(s, mu)).sigmoid()
        p = share / (x.shape[1] * mu)
        ctx.mu, ctx.eps = mu, eps
        ctx.save_for_backward(x, w, s, share, p, dots, squares, energy)
        return (p[:, None] @ x).squeeze(1), p

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    @once_differentiable
    def backward(ctx: Any, du: Tensor, dp: Tensor) -> tuple[Tensor | None, ...]:
        from .compiled_loops import gsp_backward

        x, w, s, share, p, dots, squares, energy = ctx.saved_tensors
        dp = dp + (du[:, None] @ x.mT).squeeze(1)
        # Implicit differentiation of mean_j sigmoid(s_j + b) = mu.
        slope = share * (1 - share)
        total = slope.sum(1, keepdim=True).clamp_min(torch.finfo(s.dtype).tiny)
        ds = slope * (dp - (slope * dp).sum(1, keepdim=True) / total) / (x.shape[1] * ctx.mu)
        dx = x.new_empty(x.shape if ctx.needs_input_grad[0] else (0, 0, 0))
        ddots, dsquares = x.new_empty(dots.shape), x.new_empty(len(x), len(w))
        saved = x, dots, squares, ctx.eps, energy, s, p
        in_threads(gsp_backward, len(x), *saved, du, ds, ddots, dsquares, dx)
        dw = ddots.flatten(0, 1).T @ x.flatten(0, 1)
        dw.addcmul_(w, dsquares.sum(0)[:, None], value=2)
        if not ctx.needs_input_grad[0]:
            return None, dw, None, None
        dx.flatten(0, 1).addmm_(ddots.flatten(0, 1), w)
        return dx, dw, None, None


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
