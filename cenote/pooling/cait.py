import torch
from torch import Tensor, nn

from .attention import CrossAttention, attention_row, default_heads, learned, mlp, shared
from .base import Grid, Pool
from .framework import FEATURES, Algorithm, State
from .registry import register


class ClassBlock(nn.Module):
    """Class attention and MLP, each scaled channel by channel before it is added (S B45-B51)."""

    def __init__(self, dim: int, heads: int, mlp_ratio: float, scale: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, 1e-6), nn.LayerNorm(dim, 1e-6)
        self.attn, self.mlp = CrossAttention(dim, heads), mlp(dim, mlp_ratio)
        self.gamma1, self.gamma2 = (nn.Parameter(torch.full((dim,), scale)) for _ in range(2))

    def forward(self, u: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        v = self.norm1(u)
        y, a = self.attn(v, self.norm1(x), own=v)
        return self.finish(u, y), a

    def finish(self, u: Tensor, y: Tensor) -> Tensor:
        g = u + self.gamma1 * y  # Λ_G of (S B50)
        u = g + self.gamma2 * self.mlp(self.norm2(g))  # Λ_X of (S B51)
        return u


@register(
    "cait",
    group=4,
    title="CaiT",
    source="Touvron et al., Going deeper with image transformers, 2021",
    category=True,
    simplified=True,
)
class CaiT(Pool):
    """Class attention: u ← u + Λ_G CA(LN(u), LN([u; X])), u ← u + Λ_X MLP(LN(u)), X fixed (S B45-B51).

    u starts as a learned CLS. One map per head, of the last of `depth` blocks, over the patches; it sums to less than
    one because the CLS attends itself as well. `heads` is 4, or the nearest divisor of `dim` below; `norm` adds the LN
    that ends a whole CaiT.
    """

    def __init__(
        self,
        dim: int,
        depth: int = 1,
        heads: int | None = None,
        mlp_ratio: float = 4,
        layer_scale: float = 1e-4,
        norm: bool = False,
    ) -> None:
        super().__init__(dim)
        if depth < 1:
            raise ValueError(f"'cait' needs at least one block, got depth={depth}")
        heads = default_heads(dim, 4) if heads is None else heads
        self.cls = learned(1, dim)
        self.blocks = nn.ModuleList(ClassBlock(dim, heads, mlp_ratio, layer_scale) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, 1e-6) if norm else nn.Identity()

    def block(self, t: int) -> ClassBlock:
        block = self.blocks[t]
        assert isinstance(block, ClassBlock)
        return block

    def algorithm(self) -> Algorithm:
        def out(c: State, y: Tensor) -> Tensor:
            u = self.block(c.t).finish(c.u, y)
            return u if c.t < len(self.blocks) - 1 else self.norm(u)

        return attention_row(
            lambda c: self.block(c.t).attn,
            init=shared(self.cls),
            query=lambda c: self.block(c.t).norm1(c.u),
            keys=lambda c: self.block(c.t).norm1(c.x),
            own=lambda c: self.block(c.t).norm1(c.u),
            out=out,
            labels=("g_m(W_Q U)", "g_m(W_K X)", "g_m(W_V X)", "MLP(g_m⁻¹(Z))"),
            phi_x=FEATURES,
            iterations=len(self.blocks),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        u, a = self.block(0)(self.cls.expand(x.shape[0], -1, -1), x)
        for t in range(1, len(self.blocks)):
            u, a = self.block(t)(u, x)
        return self.norm(u), a
