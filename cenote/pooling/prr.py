from torch import Tensor, nn

from .attention import block_diagonal, check_split, head_count, own_blocks, split
from .base import Grid, Pool
from .framework import DOT, Algorithm, Component, Variables
from .registry import register


@register(
    "prr",
    group=8,
    title="PRR",
    source="Locality-Attending Vision Transformer, ICLR 2026",
    category=True,
)
class PRR(Pool):
    """Patch representation refinement: every token attends all tokens, without any weights, then
    the mean of the refined tokens.

    u_h = 1/p Σ_i Σ_j softmax_j(x_hi·x_hj / √d) x_hj for each head h. One map per head: the mean of
    the rows of its attention, so that the refined tokens are never computed. query="first" takes
    the row of the first token instead of the mean, for tokens [CLS; patches]. `heads` is 8, or the
    nearest divisor of `dim` below; `norm` puts a LayerNorm in front.
    """

    sums_to_one = True

    def __init__(
        self, dim: int, heads: int | None = None, query: str = "mean", norm: bool = False
    ) -> None:
        super().__init__(dim)
        self.check_choice("query", query, ("mean", "first"))
        heads = head_count(dim, heads, 8)
        check_split(dim, heads, "heads")
        self.heads, self.query, self.scale = heads, query, (dim // heads) ** -0.5
        self.norm = nn.LayerNorm(dim, 1e-6) if norm else nn.Identity()
        self.permutation_invariant = query == "mean"

    def algorithm(self) -> Algorithm:
        def attention(c: Variables) -> Tensor:
            rows = split((c.s * self.scale).softmax(-1), 1, c.k.shape[1])  # (B, N, m, N)
            return rows[:, 0] if self.query == "first" else rows.mean(1)

        return Algorithm(
            phi_q=Component("g_m(X)", lambda c: block_diagonal(self.norm(c.x), self.heads)),
            phi_k=Component("X", lambda c: self.norm(c.x)),
            similarity=DOT,
            attention=Component("σ₂(S_i/√d)ᵀ1/p", attention),
            phi_v=Component("X", lambda c: self.norm(c.x)),
            phi_u=Component("g_m⁻¹(Z)", lambda c: own_blocks(c.z, self.heads)),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        x = split(self.norm(x), -1, self.heads).transpose(1, 2)  # (B, m, N, d)
        queries = x[:, :, :1] if self.query == "first" else x
        a = (queries * self.scale @ x.mT).softmax(-1).mean(2)  # (B, m, N)
        return (a[:, :, None] @ x).flatten(1)[:, None], a
