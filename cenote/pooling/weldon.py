from torch import Tensor

from .base import Grid, Pool
from .framework import UNIFORM, Algorithm, Mean
from .registry import register


@register("weldon", group=7, title="WELDON", source="Durand et al., WELDON, 2016")
class WELDON(Pool):
    """Mean of the `top` largest values plus mean of the `low` smallest, channel by channel."""

    no_attention = "each channel picks positions of its own"

    def __init__(self, dim: int, top: int = 3, low: int = 3) -> None:
        super().__init__(dim)
        if top < 1 or low < 0:
            raise ValueError(f"'weldon' needs top >= 1 and low >= 0, got {top} and {low}")
        self.top, self.low = top, low
        self.min_tokens = max(top, low)

    def algorithm(self) -> Algorithm:
        top, low = self.top, self.low

        def extremes(v: Tensor, a: Tensor) -> Tensor:
            ordered = v.sort(1).values
            u = ordered[:, -top:].mean(1, keepdim=True)
            return u + ordered[:, :low].mean(1, keepdim=True) if low else u

        return Algorithm(attention=UNIFORM, f=Mean("top+low", extremes))

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, None]:
        u = x.topk(self.top, 1).values.mean(1, keepdim=True)
        if self.low:
            u = u + x.topk(self.low, 1, largest=False).values.mean(1, keepdim=True)
        return u, None
