import torch
from torch import Tensor, nn

from .base import Pool
from .framework import UNIFORM, Algorithm, Component, learnable_power, power
from .registry import register


@register(
    "gem", group=1, title="GeM", source="Radenović et al., Fine-tuning CNN Image Retrieval, 2019"
)
class GeM(Pool):
    """Generalised mean (mean_j x_j^γ)^(1/γ) with γ learnable, x clamped at `eps` [SimPool Eq. B5].

    γ = 1 is the mean, γ → ∞ the maximum. γ starts at 2 as in SimPool's tournament (3 is the
    retrieval custom).
    """

    no_attention = "each channel weighs positions by its own values"

    def __init__(
        self, dim: int, gamma: float = 2.0, eps: float = 1e-6, learnable: bool = True
    ) -> None:
        super().__init__(dim)
        self.check_positive(gamma=gamma, eps=eps)
        self.eps = eps
        self.gamma: float | nn.Parameter = (
            nn.Parameter(torch.tensor(float(gamma))) if learnable else float(gamma)
        )

    def algorithm(self) -> Algorithm:
        eps, gamma = self.eps, self.gamma
        mean = learnable_power(gamma) if isinstance(gamma, Tensor) else power(gamma)
        return Algorithm(
            attention=UNIFORM, phi_v=Component("X", lambda c: c.x.clamp_min(eps)), f=mean
        )
