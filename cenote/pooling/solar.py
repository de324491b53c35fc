import math

import torch
from torch import Tensor, nn

from .base import Pool
from .batchnorm import BatchNorm
from .framework import UNIFORM, Algorithm, Component, learnable_power
from .registry import register


@register("solar", group=7, title="SOLAR", source="Ng et al., SOLAR, 2020")
class SOLAR(Pool):
    """Second-order attention, then GeM: u = (mean_j y_j^γ)^(1/γ), Y = X + W_V σ₂(FᵀG/√d') H.

    F, G = relu(BN(W X)) and H = W X have d' = D / `reduction` channels; W_V starts at zero, so that
    Y starts as X.
    """

    no_attention = "its attention is between positions (N x N); the pooling weighs them alike"

    def __init__(self, dim: int, reduction: int = 4, gamma: float = 3.0, eps: float = 1e-6) -> None:
        super().__init__(dim)
        self.check_whole(reduction=reduction)
        self.check_positive(gamma=gamma, eps=eps)
        hidden = max(1, dim // reduction)
        self.eps, self.scale = eps, 1 / math.sqrt(hidden)
        self.f = nn.Sequential(nn.Linear(dim, hidden), BatchNorm(hidden), nn.ReLU())
        self.g = nn.Sequential(nn.Linear(dim, hidden), BatchNorm(hidden), nn.ReLU())
        self.h, self.v = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        nn.init.zeros_(self.v.weight)
        nn.init.zeros_(self.v.bias)
        self.gamma = nn.Parameter(torch.tensor(float(gamma)))

    def algorithm(self) -> Algorithm:
        return Algorithm(
            attention=UNIFORM,
            phi_v=Component("X+SOA(X)", lambda c: self.attended(c.x).clamp_min(self.eps)),
            f=learnable_power(self.gamma),
        )

    def attended(self, x: Tensor) -> Tensor:
        s = self.f(x) @ self.g(x).mT * self.scale
        a = s.softmax(-1)  # (B, N, N): where each position looks
        y: Tensor = x + self.v(a @ self.h(x))
        return y
