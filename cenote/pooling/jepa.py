from torch import Tensor, nn

from .attention import CrossAttention, attention_row, head_count, learned, mlp, shared
from .base import Grid, Pool
from .framework import Algorithm
from .registry import register


@register(
    "jepa",
    group=8,
    title="V-JEPA",
    source="Bardes et al., Revisiting feature prediction for learning visual representations from video, 2024",
    category=True,
)
class JEPA(Pool):
    """V-JEPA's attentive pooler: from a learned u, u ← u + W_U MHA(u, LN(X)), u ← u + MLP(LN(u)).

    `k` queries give k vectors. One map per query and head. `heads` is 12, or the nearest divisor of
    `dim` below. V-JEPA 2 leaves W_U out: `proj=False`.
    """

    sums_to_one = True

    def __init__(
        self,
        dim: int,
        k: int = 1,
        heads: int | None = None,
        mlp_ratio: float = 4,
        proj: bool = True,
    ) -> None:
        super().__init__(dim, k)
        self.query = learned(k, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = CrossAttention(dim, head_count(dim, heads, 12), proj=proj)
        self.mlp = mlp(dim, mlp_ratio)

    def algorithm(self) -> Algorithm:
        return attention_row(
            lambda c: self.attn,
            init=shared(self.query),
            query=lambda c: c.u,
            keys=lambda c: self.norm1(c.x),
            out=lambda c, y: self.finish(c.u, y),
            labels=("g_m(W_Q U)", "g_m(W_K LN(X))", "g_m(W_V LN(X))", "MLP(U+g_m⁻¹(Z))"),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        y, a = self.attn(self.query, self.norm1(x))
        return self.finish(self.query, y), a

    def finish(self, u: Tensor, y: Tensor) -> Tensor:
        g = u + y
        u = g + self.mlp(self.norm2(g))
        return u
