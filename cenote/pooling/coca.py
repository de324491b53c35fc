import torch
from torch import Tensor, nn

from .attention import CrossAttention, attention_row, head_count, shared
from .base import Grid, Pool
from .framework import Algorithm
from .registry import register


@register(
    "coca",
    group=8,
    title="CoCa",
    source="Yu et al., CoCa: contrastive captioners are image-text foundation models, 2022",
    category=True,
)
class CoCa(Pool):
    """CoCa's attentional pooler: u = W_U MHA(LN(q), LN(X)), learned queries q, no residual.

    `k` queries give k vectors. One map per query and head. `heads` is 8, or the nearest divisor of
    `dim` below.
    """

    sums_to_one = True

    def __init__(self, dim: int, k: int = 1, heads: int | None = None) -> None:
        super().__init__(dim, k)
        self.query = nn.Parameter(torch.randn(k, dim))
        self.norm_q, self.norm_k = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = CrossAttention(dim, head_count(dim, heads, 8), std=(2 * dim) ** -0.5)

    def algorithm(self) -> Algorithm:
        return attention_row(
            lambda c: self.attn,
            init=shared(self.query),
            query=lambda c: self.norm_q(c.u),
            keys=lambda c: self.norm_k(c.x),
            labels=("g_m(W_Q LN(U))", "g_m(W_K LN(X))", "g_m(W_V LN(X))", "W_U g_m⁻¹(Z)"),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        y: tuple[Tensor, Tensor] = self.attn(self.norm_q(self.query), self.norm_k(x))
        return y
