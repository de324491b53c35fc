import torch
from torch import Tensor, nn

from .base import Grid, Pool
from .framework import FEATURES, Algorithm, Component, Variables
from .registry import register


@register("cbam", group=3, title="CBAM", source="Woo et al., CBAM, 2018", category=True)
class CBAM(Pool):
    """A channel gate q, then a spatial gate a, each from averages and maxima, then the mean
    [SimPool Eqs. B29-B35].

    q = σ(MLP(π_A(X)) + MLP(π_max(X))), V = diag(q)X, a = σ(conv₇[mean; max of V over channels]), u
    = Va/p.
    """

    permutation_invariant = False
    needs_grid = True

    def __init__(self, dim: int, reduction: int = 16, kernel: int = 7) -> None:
        super().__init__(dim)
        if kernel < 1 or kernel % 2 == 0:
            raise ValueError(f"'cbam' convolves with an odd kernel, got {kernel}")
        self.check_positive(reduction=reduction)
        hidden = max(1, int(dim / reduction + 0.5))
        self.kernel = kernel
        self.fc1, self.fc2 = nn.Linear(dim, hidden, bias=False), nn.Linear(hidden, dim, bias=False)
        self.conv = nn.Conv2d(2, 1, kernel, padding=kernel // 2)

    def algorithm(self) -> Algorithm:
        def similarity(c: Variables) -> Tensor:
            v = c.q * c.k
            return torch.stack([v.mean(-1), v.amax(-1)], 1)  # (B, 2, N)

        return Algorithm(
            init=Component("[π_A(X) π_max(X)]", lambda c: self.squeeze(c.x)),
            phi_q=Component("σ(MLP(U)1₂)", lambda c: self.gate(c.u)),
            phi_k=FEATURES,
            similarity=Component("[xᵀy/d max(x∘y)]", similarity),
            attention=Component(f"σ(conv_{self.kernel}(S))/p", lambda c: self.look(c.s, c.grid)),
            phi_v=Component("diag(q)X", lambda c: c.q * c.x),
            phi_x=Component("V diag(a)", lambda c: c.v * c.a.mT),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        q = self.gate(self.squeeze(x))  # (B, 1, D)
        s = torch.stack([(q @ x.mT)[:, 0] / self.dim, (q * x).amax(-1)], 1)
        a = self.look(s, grid)
        return q * (a @ x), a  # V itself is only ever needed for its maximum

    @staticmethod
    def squeeze(x: Tensor) -> Tensor:
        return torch.stack([x.mean(1), x.amax(1)], 1)  # (B, 2, D)

    def gate(self, u: Tensor) -> Tensor:
        """(B, 2, D) -> (B, 1, D): one MLP for both, summed."""
        q: Tensor = self.fc2(self.fc1(u).relu()).sum(1, keepdim=True).sigmoid()
        return q

    def look(self, s: Tensor, grid: Grid | None) -> Tensor:
        """(B, 2, N) -> (B, 1, N), the spatial gate over p."""
        assert grid is not None
        a: Tensor = self.conv(s.reshape(s.shape[0], 2, *grid)).sigmoid()
        return a.flatten(2) / s.shape[-1]
