import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import CrossAttention, attention_row, head_count, shared
from .base import Grid, Pool
from .framework import Algorithm
from .registry import register


@register(
    "cae",
    group=8,
    title="CAE",
    source="Chen et al., Context autoencoder for self-supervised representation learning, 2024",
    category=True,
)
class CAE(Pool):
    """CAE's attentive probe: u = W_U MHA(LN_Q(q), LN_K(X), LN_V(X)), one learned q, no residual, no
    key bias.

    One map per head. `heads` is 12, or the nearest divisor of `dim` below.
    """

    sums_to_one = True

    def __init__(self, dim: int, heads: int | None = None) -> None:
        super().__init__(dim)
        self.query = nn.Parameter(torch.zeros(1, dim))  # as theirs: the first maps are uniform
        self.norm_q, self.norm_k, self.norm_v = (nn.LayerNorm(dim, 1e-6) for _ in range(3))
        self.attn = CrossAttention(dim, head_count(dim, heads, 12), key_bias=False)

    def algorithm(self) -> Algorithm:
        return attention_row(
            lambda c: self.attn,
            init=shared(self.query),
            query=lambda c: self.norm_q(c.u),
            keys=lambda c: self.norm_k(c.x),
            values=lambda c: self.norm_v(c.x),
            labels=("g_m(W_Q LN(U))", "g_m(W_K LN(X))", "g_m(W_V LN(X))", "W_U g_m⁻¹(Z)"),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        # LN_K and LN_V differ by their affine maps only, which move to the query and behind the
        # pooling as well. As in `fold`, the bias of LN_K is a constant of each map, kept for its
        # (zero) gradient.
        x = F.layer_norm(x, (self.dim,), eps=self.norm_k.eps)
        w, _ = self.attn.fold(self.norm_q(self.query))  # (m, D)
        s = (w * self.norm_k.weight) @ x.mT + (w @ self.norm_k.bias).unsqueeze(-1)  # (B, m, N)
        a = s.softmax(-1)
        return self.attn.value((a @ x) * self.norm_v.weight + self.norm_v.bias), a
