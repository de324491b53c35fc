from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from .base import Grid, Pool
from .framework import DOT, GAP_INIT, Algorithm, Component, power, softmax_over_positions
from .kernels.simpool import GAMMAS, simpool_in_threads
from .kernels.threads import loops_serve
from .registry import register

MINIMUM_OVER = {"image": (1, 2), "batch": (0, 1, 2), "channel": (1,)}  # axes of (B, N, D)


@register("simpool", 5, "SimPool", "Psomas et al., Keep it SimPool, 2023", category=True)
class SimPool(Pool):
    """One step of attention from the average to the features, pooled by a generalized mean.

        u0 = GAP(X),  X' = LN(X),  a = softmax((W_K X')^T W_Q u0 / sqrt d)
        V = X' - min X',  u = (sum_j a_j V_j^gamma)^(1/gamma)      [SimPool Algorithm 2]

    The paper uses gamma = 2 for convolutional networks and 1.25 for transformers, and so do models
    unless `gamma` is given. `gamma=None` is the weighted average of X', as in the released code.
    The minimum (`floor`) is taken over the "image" (the paper), the "batch" (the released layer: a
    vector then depends on other images) or per "channel" (timm). `beta`: a learned offset of some
    checkpoints. W_Q and W_K start as nn.Linear does, uniformly within 1 / sqrt d; in the authors' ViT
    and ConvNeXt they start normally with deviation 0.02, in their ResNet as here. See also
    `SimPoolAblation`.
    """

    sums_to_one = True
    published: ClassVar = {"gamma": 2.0}
    checkpoint_names: ClassVar = {"norm_patches.": "norm.", "q.": "wq.", "k.": "wk."}
    optional_parameters = ("beta",)

    def __init__(
        self, dim: int, gamma: float | None = None, floor: str = "image", beta: bool = False
    ) -> None:
        super().__init__(dim)
        self.check_choice("floor", floor, MINIMUM_OVER)
        self.check_positive(gamma=1 if gamma is None else gamma)
        self.gamma, self.floor = gamma, floor
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.wq, self.wk = (nn.Linear(dim, dim, bias=False) for _ in "qk")
        self.beta = nn.Parameter(torch.zeros(1)) if beta else None

    @property
    def label(self) -> str:
        if self.gamma is None:
            return "simpool (no gamma)"
        return f"simpool (gamma {self.gamma:g})"

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        if self.floor == "image" and self.gamma in GAMMAS and loops_serve(x):  # the same function
            weights = self.wq.weight, self.wk.weight, self.norm.weight, self.norm.bias
            u, a = simpool_in_threads(x, *weights, self.norm.eps, self.gamma)
            return self.shift(u[:, None]), a[:, None]
        u0 = x.mean(1, keepdim=True)  # (B, 1, D) [SimPool Eq. 12]
        q = self.wq(u0)  # [SimPool Eq. 13]
        x = self.norm(x)
        t = q @ self.wk.weight * self.dim**-0.5  # K^T q = X^T (W_K^T q) [SimPool Eq. 14]
        a = (t @ x.mT).softmax(-1)  # (B, 1, N) [SimPool Eq. 15]
        return self.shift(power(self.gamma)(self.lift(x), a)), a  # [SimPool Eqs. 16, 17]

    def algorithm(self) -> Algorithm:
        return Algorithm(
            init=GAP_INIT,
            phi_q=Component("W_Q U", lambda c: self.wq(c.u)),
            phi_k=Component("W_K X", lambda c: self.keys(c.x)),
            similarity=DOT,
            attention=softmax_over_positions(self.dim**-0.5),
            phi_v=Component("X - min X", lambda c: self.lift(self.norm(c.x))),
            f=power(self.gamma),
            phi_u=Component("Z", lambda c: self.shift(c.z)),
        )

    def keys(self, x: Tensor) -> Tensor:
        """K = W_K LN(X) [SimPool Eq. 14], which object discovery reads."""
        k: Tensor = self.wk(self.norm(x))
        return k

    def lift(self, v: Tensor) -> Tensor:
        """V = X' - min X' >= 0 [SimPool Eq. 16], which the power mean needs."""
        return v if self.gamma is None else v - v.amin(MINIMUM_OVER[self.floor], keepdim=True)

    def shift(self, u: Tensor) -> Tensor:
        return u if self.beta is None else u + self.beta
