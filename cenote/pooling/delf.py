from torch import nn

from .base import Pool
from .framework import Algorithm, Component
from .registry import register


@register("delf", group=7, title="DELF", source="Noh et al., Attentive Deep Local Features, 2017")
class DELF(Pool):
    """Attentive local features: u = Σ_j a_j x_j with scores a_j = softplus(w₂ relu(W₁ x_j + b₁) +
    b₂).
    """

    def __init__(self, dim: int, hidden: int = 512) -> None:
        super().__init__(dim)
        self.check_whole(hidden=hidden)
        self.score = nn.Sequential(
            nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, 1), nn.Softplus()
        )

    def algorithm(self) -> Algorithm:
        scores = Component("softplus(MLP(X))", lambda c: self.score(c.x).mT)  # (B, 1, N)
        return Algorithm(attention=scores)
