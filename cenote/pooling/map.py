from torch import Tensor, nn

from .attention import CrossAttention, attention_row, head_count, learned, mlp, shared
from .base import Grid, Pool
from .framework import Algorithm
from .registry import register


@register(
    "map",
    group=8,
    title="MAP",
    source="Zhai et al., Sigmoid loss for language image pre-training, 2023",
    category=True,
)
class MAP(Pool):
    """SigLIP's latent pool: a learned probe u attends X, y = W_U MHA(u, X), then y + MLP(LN(y)).

    `k` probes give k vectors. One map per probe and head. `heads` is 12, or the nearest divisor of
    `dim` below.
    """

    sums_to_one = True

    def __init__(
        self, dim: int, k: int = 1, heads: int | None = None, mlp_ratio: float = 4
    ) -> None:
        super().__init__(dim, k)
        self.query = learned(k, dim, std=dim**-0.5)
        self.attn = CrossAttention(dim, head_count(dim, heads, 12), std=dim**-0.5)
        self.norm, self.mlp = nn.LayerNorm(dim, 1e-6), mlp(dim, mlp_ratio, std=dim**-0.5)

    def algorithm(self) -> Algorithm:
        return attention_row(
            lambda c: self.attn,
            init=shared(self.query),
            query=lambda c: c.u,
            keys=lambda c: c.x,
            out=lambda c, y: self.finish(y),
            labels=("g_m(W_Q U)", "g_m(W_K X)", "g_m(W_V X)", "MLP(g_m⁻¹(Z))"),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        y, a = self.attn(self.query, x)
        return self.finish(y), a

    def finish(self, y: Tensor) -> Tensor:
        u: Tensor = y + self.mlp(self.norm(y))
        return u
