import torch
from torch import Tensor

from ..options import check_number
from .base import Grid, Pool
from .framework import Algorithm, Component, Mean
from .registry import register


@register(
    "tap",
    group=1,
    title="TAP",
    source="Bae et al., Rethinking Class Activation Mapping for Weakly Supervised Object "
    "Localization, 2020",
)
class TAP(Pool):
    """Thresholded average pooling: u = Σ_j m_j x_j / Σ_j m_j with m_j = 1 where x_j > θ max_j x_j and
    else 0, channel by channel.

    The paper assumes a ReLU. Here a position with the maximum counts in any case, so that a channel
    that is negative everywhere has a value.
    """

    no_attention = "each channel has positions of its own"

    def __init__(self, dim: int, theta: float = 0.1) -> None:
        super().__init__(dim)
        check_number("'tap': theta", theta, least=0, most=1)
        self.theta = theta

    def algorithm(self) -> Algorithm:
        return Algorithm(
            attention=Component("1", lambda c: torch.ones_like(c.x[:, None, :, 0])),
            f=Mean("x>θ·max", lambda v, a: self.mean(v[:, None], 2)),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, None]:
        return self.mean(x, 1)[:, None], None

    def mean(self, x: Tensor, dim: int) -> Tensor:
        top = x.amax(dim, keepdim=True)
        active = ((x > self.theta * top) | (x == top)).to(x.dtype)
        return (x * active).sum(dim) / active.sum(dim)
