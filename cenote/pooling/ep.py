from torch import Tensor, nn

from .attention import apply_blocks, check_split, head_count, learned, own_blocks, shared
from .base import Grid, Pool
from .framework import DOT, FEATURES, Algorithm, Component, softmax_over_positions
from .registry import register


@register(
    "ep",
    group=8,
    title="EP",
    source="Psomas et al., Attention, please! Revisiting attentive probing through the lens of efficiency, 2025",
    category=True,
)
class EP(Pool):
    """Efficient probing: a_q = softmax_j(u_q·x_j / √d) with no key map, y = concat_q W_V⁽q⁾ Σ_j
    a_qj x_j.

    One map per learned query. The rows of W_V are split among the `queries`: 32, or the nearest
    divisor of the output dimension below.

    The other attentive probes here have the defaults of their own papers. In EP's comparison AbMILP
    has as many hidden units as channels, CLIP a LayerNorm and positions, MAP no LayerNorm, CaiT a
    last LayerNorm and a layer scale of 1e-5, and CoCa several queries; heads are 8 or 16.
    """

    sums_to_one = True

    def __init__(self, dim: int, queries: int | None = None, out_dim: int | None = None) -> None:
        super().__init__(dim, out_dim=out_dim)
        queries = head_count(self.out_dim, queries, 32)
        check_split(self.out_dim, queries, "queries")
        self.queries, self.scale = queries, dim**-0.5
        self.query = learned(queries, dim)
        self.v = nn.Linear(dim, self.out_dim, bias=False)

    def algorithm(self) -> Algorithm:
        return Algorithm(
            init=shared(self.query),
            phi_q=Component("U", lambda c: c.u),
            phi_k=FEATURES,
            similarity=DOT,
            attention=softmax_over_positions(self.scale),
            phi_v=Component("W_V X", lambda c: self.v(c.x)),
            phi_u=Component("g_k⁻¹(Z)", lambda c: own_blocks(c.z, self.queries)),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        a = ((self.query * self.scale) @ x.mT).softmax(-1)  # (B, Q, N)
        # W_V acts on the pooled tokens, not on all of them.
        return apply_blocks((a @ x).unsqueeze(1), self.v.weight), a
