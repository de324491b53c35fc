import torch
from torch import Tensor, nn

from .base import Grid, Pool
from .framework import UNIFORM, Algorithm, Mean
from .registry import register

# |r| is held at least this far from 0, where the formula is 0/0 and its limit the mean.
NEAREST = 1e-2


@register(
    "lse",
    group=1,
    title="LSE",
    source="Pinheiro & Collobert, Image-level to Pixel-level, 2015",
    category=True,
)
class LSE(Pool):
    """Log-sum-exp: (1/r) log mean_j exp(r x_j) with a learnable scale r [SimPool Eq. B7].

    A smooth maximum for large r, the mean at r → 0, a smooth minimum for r < 0.
    """

    no_attention = "each channel weighs positions by its own values"

    def __init__(self, dim: int, r: float = 10.0, learnable: bool = True) -> None:
        super().__init__(dim)
        self.r = nn.Parameter(torch.tensor(float(r)), requires_grad=learnable)

    def algorithm(self) -> Algorithm:
        r = self.scale()

        def mean(v: Tensor, a: Tensor) -> Tensor:
            y = r * v[:, None] + a.log()[..., None]  # (B, k, N, D)
            return y.logsumexp(2) / r  # (B, k, D)

        return Algorithm(attention=UNIFORM, f=Mean("e^{rx}", mean))

    def scale(self) -> Tensor:
        """r, held away from zero; its gradient passes, so that training can cross."""
        away = torch.where(self.r < 0, self.r.clamp_max(-NEAREST), self.r.clamp_min(NEAREST))
        return self.r + (away - self.r).detach()

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, None]:
        r = self.scale()
        y = r * x
        top = y.detach().amax(1, keepdim=True)  # subtracted and added back: no gradient of its own
        return ((y - top).exp().mean(1, keepdim=True).log() + top) / r, None
