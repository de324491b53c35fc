from torch import Tensor, nn

from .base import Grid, Pool
from .framework import GAP_INIT, UNIFORM, Algorithm, Component
from .registry import register


@register(
    "se",
    group=3,
    title="SE",
    source="Hu et al., Squeeze-and-Excitation Networks, 2018",
    category=True,
)
class SE(Pool):
    """Squeeze-and-excitation, then the mean: u = q ∘ π_A(X), q = σ(MLP(π_A(X)))
    [SimPool Eqs. B25-B28].
    """

    no_attention = "it weighs channels, not positions"

    def __init__(self, dim: int, reduction: int = 16) -> None:
        super().__init__(dim)
        self.check_positive(reduction=reduction)
        hidden = max(8, int(dim / reduction + 4) // 8 * 8)  # a multiple of 8, as timm has it
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def algorithm(self) -> Algorithm:
        return Algorithm(
            init=GAP_INIT,
            phi_q=Component("σ(MLP(U))", lambda c: self.gate(c.u)),
            attention=UNIFORM,
            phi_v=Component("diag(q)X", lambda c: c.q * c.x),
            phi_x=Component("V", lambda c: c.v),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, None]:
        u = x.mean(1, keepdim=True)
        return self.gate(u) * u, None  # the mean of a gated map is the gated mean

    def gate(self, u: Tensor) -> Tensor:
        q: Tensor = self.fc2(self.fc1(u).relu()).sigmoid()
        return q
