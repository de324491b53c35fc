import math

from torch import Tensor

from .base import Grid, MixablePool
from .framework import UNIFORM, Algorithm, Mean, power, weighted_sum
from .kernels.mixed_max import mixed_max, mixed_mean
from .registry import register


@register(
    "gap+max",
    group=1,
    title="GAP+max",
    source="Kim et al., Proxy Anchor Loss for Deep Metric Learning, 2020",
)
class GAPMax(MixablePool):
    """Mean plus maximum over positions, channel by channel; `average=True` gives half of that
    sum.
    """

    no_attention = "each channel adds its own position to the mean"

    def __init__(self, dim: int, average: bool = False) -> None:
        super().__init__(dim)
        self.scale = 0.5 if average else 1.0

    def algorithm(self) -> Algorithm:
        largest, scale = power(math.inf), self.scale
        both = Mean("f_-1(x)+f_-∞(x)", lambda v, a: scale * (weighted_sum(v, a) + largest(v, a)))
        return Algorithm(attention=UNIFORM, f=both)

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, None]:
        return self.scale * (x.mean(1, keepdim=True) + x.amax(1, keepdim=True)), None

    def pool_mixed(self, x: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
        return self.scale * (mixed_mean(x, b, c, lam) + mixed_max(x, b, c, lam))
