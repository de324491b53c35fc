import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Grid, Pool
from .batchnorm import BatchNorm
from .framework import UNIFORM, Algorithm, Component
from .registry import register


@register(
    "gsop",
    group=7,
    title="GSoP",
    source="Gao et al., Global Second-order Pooling Convolutional Networks, 2019",
)
class GSoP(Pool):
    """A channel gate from second-order statistics, then the mean: u = q ∘ π_A(X), q = σ(W₂
    row(BN(Σ))).

    Σ is the covariance over positions of relu(BN(W₁X)) (`hidden` channels); row makes 4 numbers of
    each row of Σ with weights of its own.
    """

    no_attention = "it weighs channels, not positions"

    def __init__(self, dim: int, hidden: int = 128) -> None:
        super().__init__(dim)
        self.check_whole(hidden=hidden)
        self.reduce, self.norm = nn.Linear(dim, hidden), BatchNorm(hidden)
        self.row_norm = BatchNorm(hidden)
        self.row = nn.Conv1d(hidden, 4 * hidden, hidden, groups=hidden)  # a row of Σ is a group
        self.expand = nn.Linear(4 * hidden, dim)

    def algorithm(self) -> Algorithm:
        return Algorithm(
            init=Component("cov(WX)", lambda c: self.covariance(c.x)),
            phi_q=Component("σ(W row(U))", lambda c: self.gate(c.u)),
            attention=UNIFORM,
            phi_v=Component("diag(q)X", lambda c: c.q * c.x),
            phi_x=Component("V", lambda c: c.v),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, None]:
        return self.gate(self.covariance(x)) * x.mean(1, keepdim=True), None

    def covariance(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, hidden, hidden)."""
        y: Tensor = F.relu(self.norm(self.reduce(x)))
        y = y - y.mean(1, keepdim=True)
        return y.mT @ y / y.shape[1]

    def gate(self, cov: Tensor) -> Tensor:
        rows = self.row_norm(cov.mT).mT  # a row's entries share their statistics
        q: Tensor = torch.sigmoid(self.expand(self.row(rows).mT))  # (B, 4 hidden, 1) -> (B, 1, D)
        return q
