from torch import Tensor, nn
from torch.nn import functional as F

from .base import Grid, Pool
from .batchnorm import BatchNorm
from .framework import UNIFORM, Algorithm, Component
from .registry import register


@register("ge", group=3, title="GE", source="Hu et al., Gather-Excite, 2018", category=True)
class GatherExcite(Pool):
    """Gather-excite, global extent, with parameters, then the mean: u = q ∘ π_A(X), q = σ(MLP(BN(w
    ⋆ X))).

    w is a depthwise kernel as large as the map: `grid` is the map it is made for. On another grid
    it is interpolated, with its sum over positions kept. timm's layer, which SimPool's authors
    followed, pads this convolution instead and so gates every position by another sum.
    """

    no_attention = "it weighs channels, not positions"
    permutation_invariant = False
    needs_grid = True

    def __init__(self, dim: int, grid: Grid = (7, 7), reduction: int = 16) -> None:
        super().__init__(dim)
        self.check_positive(reduction=reduction)
        self.check_grid("grid", grid)
        hidden = max(1, int(dim / reduction + 0.5))
        self.gather = nn.Conv2d(dim, dim, grid, groups=dim, bias=False)
        self.norm = BatchNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def algorithm(self) -> Algorithm:
        return Algorithm(
            init=Component("DW(X)", lambda c: (c.x * self.kernel(c.grid)).sum(1, keepdim=True)),
            phi_q=Component("σ(MLP(BN(U)))", lambda c: self.gate(c.u)),
            attention=UNIFORM,
            phi_v=Component("diag(q)X", lambda c: c.q * c.x),
            phi_x=Component("V", lambda c: c.v),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, None]:
        gathered = (x * self.kernel(grid)).sum(1, keepdim=True)  # (B, 1, D)
        return self.gate(gathered) * x.mean(1, keepdim=True), None

    def kernel(self, grid: Grid | None) -> Tensor:
        """w for a grid, as tokens (N, D)."""
        assert grid is not None
        w = self.gather.weight  # (D, 1, h, w)
        # At its own size this is w, exactly.
        to = F.interpolate(w, size=grid, mode="bilinear").flatten(1)
        w = w.flatten(1)
        # A share of the sum, then the rest of it spread evenly: a ratio of two sums could divide by
        # zero.
        to = to * (w.shape[1] / to.shape[1])
        return (to + (w.sum(1, keepdim=True) - to.sum(1, keepdim=True)) / to.shape[1]).mT

    def gate(self, u: Tensor) -> Tensor:
        q: Tensor = self.fc2(self.fc1(self.norm(u)).relu()).sigmoid()
        return q
