import math

from torch import Tensor

from .base import Grid, MixablePool
from .framework import UNIFORM, Algorithm, power
from .kernels.mixed_max import mixed_max
from .registry import register


@register(
    "max",
    group=1,
    title="max",
    source="Tolias et al., Particular object retrieval with R-MAC, 2016",
)
class Max(MixablePool):
    """Max pooling: the largest value of each channel over positions
    [Pooling for WSOL Eq. 3; SimPool Eq. B3].
    """

    no_attention = "each channel picks a position of its own"

    def algorithm(self) -> Algorithm:
        return Algorithm(attention=UNIFORM, f=power(math.inf))

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, None]:
        return x.amax(1, keepdim=True), None

    def pool_mixed(self, x: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
        return mixed_max(x, b, c, lam)
