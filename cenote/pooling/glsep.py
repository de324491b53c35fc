import torch
from torch import Tensor

from .base import Grid, Pool
from .framework import Algorithm, Component, Mean
from .registry import register


@register(
    "glsep",
    group=1,
    title="GLSEP",
    source="Zhang et al., AlphaMEX, 2018; as in the localization paper [Pooling for WSOL Eq. 4]",
)
class GLSEP(Pool):
    """Global log-sum-exp pooling: log Σ_j exp(x_j), a sum without 1/p and without a scale
    [Pooling for WSOL Eq. 4].
    """

    no_attention = "each channel weighs positions by its own values"

    def algorithm(self) -> Algorithm:
        return Algorithm(
            attention=Component("1", lambda c: torch.ones_like(c.x[:, None, :, 0])),
            f=Mean("e^x", lambda v, a: (v[:, None] + a.log()[..., None]).logsumexp(2)),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, None]:
        return x.logsumexp(1, keepdim=True), None
