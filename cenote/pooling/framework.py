"""Algorithm 1 of SimPool [SimPool Eqs. 1-7]: every pooling method as one arrangement of the same
few parts.

A method is *declared* as an `Algorithm`: what initialises U, how queries, keys and values are made,
which similarity, which attention, which mean. `landscape` prints those declarations. Shapes are
transposed with respect to the paper, batch first: X (B, N, D), U (B, k, D), S and A (B, k, N).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

TINY = 1e-30  # below every square of a float32 that matters; its root is still a float32


class Variables:
    """The variables of Algorithm 1 as they stand while it runs."""

    x: Tensor  # features (B, N, D)
    u: Tensor  # pooled vectors (B, k, D)
    q: Tensor  # queries (B, k, n)
    k: Tensor  # keys (B, N, n)
    s: Tensor  # similarities (B, k, N)
    a: Tensor  # attention (B, k, N)
    v: Tensor  # values (B, N, n)
    z: Tensor  # pooled values (B, k, n)

    def __init__(self, x: Tensor, grid: tuple[int, int] | None) -> None:
        self.x, self.grid, self.t = x, grid, 0


@dataclass(frozen=True)
class Component:
    """A component: how the table writes it, and what it computes from the state."""

    label: str
    fn: Callable[[Variables], Tensor]

    def __call__(self, c: Variables) -> Tensor:
        return self.fn(c)


@dataclass(frozen=True)
class Mean:
    """f of [SimPool Eq. 5]: `fn(v, a)` is f^-1(f(V) A) for values (B, N, D), weights (B, k, N)."""

    label: str
    fn: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, v: Tensor, a: Tensor) -> Tensor:
        return self.fn(v, a)


def weighted_sum(v: Tensor, a: Tensor) -> Tensor:
    return a @ v  # (B, k, N) @ (B, N, D)


AVERAGE = Mean("f_-1(x)", weighted_sum)


class Algorithm:
    """One row of Table 1. A part left out is one the method does not have."""

    def __init__(
        self,
        *,
        attention: Component,  # A = h(S)
        init: Component | None = None,  # U^0
        phi_q: Component | None = None,
        phi_k: Component | None = None,
        similarity: Component | None = None,  # s(x, y)
        phi_v: Component | None = None,
        f: Mean | None = None,
        phi_x: Component | None = None,
        phi_u: Component | None = None,
        iterations: int = 1,
    ) -> None:
        self.init, self.phi_q, self.phi_k, self.similarity = init, phi_q, phi_k, similarity
        self.attention, self.phi_v, self.f = attention, phi_v or FEATURES, f or AVERAGE
        self.phi_x, self.phi_u, self.iterations = phi_x, phi_u or POOLED, iterations

    def run(self, x: Tensor, grid: tuple[int, int] | None = None) -> tuple[Tensor, Tensor]:
        """X (B, N, D) -> U (B, k, D'), A (B, queries, N) of the last iteration."""
        c = Variables(x, grid)
        if self.init:
            c.u = self.init(c)
        for c.t in range(self.iterations):
            if self.phi_q:
                c.q = self.phi_q(c)  # [SimPool Eq. 1]
            if self.phi_k:
                c.k = self.phi_k(c)  # [SimPool Eq. 2]
            if self.similarity:
                c.s = self.similarity(c)
            c.a = self.attention(c)  # [SimPool Eq. 3]
            c.v = self.phi_v(c)  # [SimPool Eq. 4]
            c.z = self.f(c.v, c.a)  # [SimPool Eq. 5]
            if self.phi_x:
                c.x = self.phi_x(c)  # [SimPool Eq. 6]
            c.u = self.phi_u(c)  # [SimPool Eq. 7]
        return c.u, c.a

    def labels(self) -> dict[str, str]:
        """Column of Table 1 -> how this method fills it."""
        return {column: getattr(getattr(self, column), "label", "") for column in COLUMNS}


COLUMNS = ("init", "phi_q", "phi_k", "similarity", "attention", "phi_v", "f", "phi_x", "phi_u")

# Components that several methods share. The rest stand in the methods' own files.

FEATURES = Component("X", lambda c: c.x)
POOLED = Component("Z", lambda c: c.z)
# [SimPool Eqs. 9, 12]
GAP_INIT = Component("π_A(X)", lambda c: c.x.mean(1, keepdim=True))
UNIFORM = Component("1/p", lambda c: torch.full_like(c.x[:, None, :, 0], 1 / c.x.shape[1]))
DOT = Component("xᵀy", lambda c: c.q @ c.k.mT)
COSINE = Component("cos(x,y)", lambda c: unit(c.q) @ unit(c.k).mT)
DISTANCE = Component("-‖x-y‖²", lambda c: -squared_distance(c.q, c.k))
SIMILARITIES = {"dot": DOT, "distance": DISTANCE, "cosine": COSINE}


def softmax_over_positions(scale: float, label: str = "σ₂(S/√d)") -> Component:
    return Component(label, lambda c: (c.s * scale).softmax(-1))  # σ_2


def softmax_over_queries(scale: float, eps: float = 1e-8, label: str = "η₂(σ₁(S/√d))") -> Component:
    """The queries compete for each position, then each query's map is normalised over positions."""

    def attention(c: Variables) -> Tensor:
        a = (c.s * scale).softmax(1) + eps
        return a / a.sum(-1, keepdim=True)

    return Component(label, attention)


def unit(x: Tensor) -> Tensor:
    """Rows of length one; a zero row stays zero, with a finite gradient."""
    # 1e-24: rsqrt has a slope of x^-3.
    return x * x.square().sum(-1, keepdim=True).clamp_min(1e-24).rsqrt()


def squared_distance(x: Tensor, y: Tensor) -> Tensor:
    """(..., n, d), (..., m, d) -> (..., n, m), by one product instead of n m d differences."""
    squares = x.square().sum(-1)[..., :, None] + y.square().sum(-1)[..., None, :]
    return (squares - 2 * x @ y.mT).clamp_min(0)


def power(gamma: float | Tensor | None, label: str = "f_α(x)") -> Mean:
    """f_alpha of [SimPool Eq. 8] as a function of gamma = (1 - alpha) / 2, for values >= 0.

    gamma = inf, 2, 1, 0, -1, -inf: maximum, RMS, mean, geometric mean, harmonic mean, minimum.
    """
    if gamma is None:
        return AVERAGE
    if not isinstance(gamma, Tensor):  # a learned exponent stays at none of these values
        if gamma == math.inf:
            return Mean("f_-∞(x)", lambda v, a: _extreme(v, a, 1))
        if gamma == -math.inf:
            return Mean("f_+∞(x)", lambda v, a: -_extreme(v, a, -1))
        if gamma == 0:
            return Mean("f_1(x)", lambda v, a: (a @ v.clamp_min(TINY).log()).exp())
        if gamma == 1:
            return AVERAGE

    def mean(v: Tensor, a: Tensor) -> Tensor:
        return root(a @ raise_to(v, gamma), gamma)

    return Mean(label, mean)


def learnable_power(gamma: Tensor) -> Mean:
    """`power` for a learned exponent: no test of its value, and no overflow."""

    def mean(v: Tensor, a: Tensor) -> Tensor:
        # The mean is homogeneous: any scale gives the same value and gradient, the maximum one that
        # is safe.
        scale = v.detach().amax(1, keepdim=True)  # (B, 1, D)
        return scale * root(a @ (v / scale).pow(gamma), gamma)

    return Mean("f_α(x)", mean)


def f_alpha(alpha: float) -> Mean:
    """[SimPool Eq. 8]: -inf, -3, -1, 1, 3, inf give max, RMS, mean, geometric, harmonic, min."""
    return power((1 - alpha) / 2, f"f_{alpha:g}(x)")


def raise_to(v: Tensor, gamma: float | Tensor) -> Tensor:
    """v^gamma for v >= 0. The papers' two exponents need no `pow`, which is ten times a square."""
    if isinstance(gamma, float) and gamma == 2:
        return v.square()
    if isinstance(gamma, float) and gamma == 1.25:
        return v * v.clamp_min(TINY).sqrt().sqrt()
    return v.clamp_min(TINY).pow(gamma)


def root(z: Tensor, gamma: float | Tensor) -> Tensor:
    """z^(1/gamma) for z >= 0, with a zero (not an infinite) slope at zero."""
    return z.clamp_min(TINY).pow(1 / gamma)


def _extreme(v: Tensor, a: Tensor, sign: int) -> Tensor:
    """Largest of sign * v over the positions of positive weight: the limit of the power mean."""
    return (sign * v[:, None]).masked_fill(a[..., None] <= 0, -math.inf).amax(2)
