from torch import Tensor, nn

from .attention import shared
from .base import Pool
from .framework import DOT, Algorithm, Component, Variables, softmax_over_positions
from .registry import register


@register(
    "abmilp",
    group=8,
    title="AbMILP",
    source="Ilse et al., Attention-based deep multiple instance learning, 2018",
    category=True,
)
class AbMILP(Pool):
    """Attention over instances: u = Σ_j a_j x_j with a = softmax(wᵀ tanh(V X)).

    `gated`: wᵀ (tanh(V X) ⊙ σ(U X)) instead. `k` rows w give k vectors. The paper's maps have no
    biases, its released code has: `bias`.
    """

    sums_to_one = True

    def __init__(
        self, dim: int, hidden: int = 128, gated: bool = False, k: int = 1, bias: bool = False
    ) -> None:
        super().__init__(dim, k)
        self.check_whole(hidden=hidden)
        self.v = nn.Linear(dim, hidden, bias)
        self.gate = nn.Linear(dim, hidden, bias) if gated else None
        self.w = nn.Linear(hidden, k, bias)

    def algorithm(self) -> Algorithm:
        def hidden(c: Variables) -> Tensor:
            h: Tensor = self.v(c.x).tanh()
            return h if self.gate is None else h * self.gate(c.x).sigmoid()

        def similarity(c: Variables) -> Tensor:
            return DOT(c) if self.w.bias is None else DOT(c) + self.w.bias.unsqueeze(-1)

        return Algorithm(
            init=shared(self.w.weight),
            phi_q=Component("U", lambda c: c.u),
            phi_k=Component("tanh(W_K X)" if self.gate is None else "tanh(W_K X)⊙σ(W_G X)", hidden),
            similarity=Component(DOT.label, similarity),
            attention=softmax_over_positions(1, "σ₂(S)"),
        )
