from torch import Tensor

from .attention import CrossAttention, attention_row, head_count, learned, shared
from .base import Grid, Pool
from .batchnorm import BatchNorm
from .framework import Algorithm
from .registry import register


@register(
    "aim",
    group=8,
    title="AIM",
    source="El-Nouby et al., Scalable pre-training of large autoregressive image models, 2024",
    category=True,
)
class AIM(Pool):
    """AIM's probe: X ← BN(X) without affine, u_h = W_V,h Σ_j softmax_j(q_h·W_K,h x_j / √d) x_j, no
    W_Q, no biases.

    Several learned `queries` are averaged into one vector, or kept as k if not `average`. One map
    per query and head. `heads` is 12, or the nearest divisor of `dim` below. In training BN's
    statistics are the batch's: an image's vector then depends on its neighbours, in evaluation it
    does not.
    """

    sums_to_one = True

    def __init__(
        self, dim: int, queries: int = 1, heads: int | None = None, average: bool = True
    ) -> None:
        super().__init__(dim, k=1 if average else queries)
        self.check_whole(queries=queries)
        heads = head_count(dim, heads, 12)
        self.average = average
        self.query = learned(queries, dim)
        self.norm = BatchNorm(dim, eps=1e-6, affine=False)
        self.attn = CrossAttention(dim, heads, q_map=False, bias=False, proj=False, std=dim**-0.5)

    def algorithm(self) -> Algorithm:
        return attention_row(
            lambda c: self.attn,
            init=shared(self.query),
            query=lambda c: c.u,
            keys=lambda c: self.norm(c.x),
            out=lambda c, y: self.finish(y),
            labels=("g_m(U)", "g_m(W_K BN(X))", "g_m(W_V BN(X))", "g_m⁻¹(Z)"),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        y, a = self.attn(self.query, self.norm(x))
        return self.finish(y), a

    def finish(self, y: Tensor) -> Tensor:
        return y.mean(1, keepdim=True) if self.average else y
