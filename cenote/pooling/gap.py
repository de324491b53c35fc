from torch import Tensor

from .base import Grid, MixablePool
from .framework import UNIFORM, Algorithm
from .kernels.mixed_max import mixed_mean
from .registry import register


@register("gap", group=1, title="GAP", source="Lin et al., Network in Network, 2014", category=True)
class GAP(MixablePool):
    """Global average pooling: the mean over positions [SimPool Eqs. 9, B2]."""

    no_attention = "it weighs every position alike"

    def algorithm(self) -> Algorithm:
        return Algorithm(attention=UNIFORM)

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, None]:
        return x.mean(1, keepdim=True), None

    def pool_mixed(self, x: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
        return mixed_mean(x, b, c, lam)
