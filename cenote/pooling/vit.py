from collections.abc import Callable

import torch
from torch import Tensor, nn

from .attention import CrossAttention, attention_row, head_count, learned, mlp, shared
from .base import Grid, Pool
from .framework import Algorithm, Component, Variables
from .registry import register


class Block(nn.Module):
    """A pre-norm transformer block [SimPool Eqs. B39, B40]."""

    def __init__(self, dim: int, heads: int, mlp_ratio: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, 1e-6), nn.LayerNorm(dim, 1e-6)
        self.attn, self.mlp = CrossAttention(dim, heads), mlp(dim, mlp_ratio)

    def forward(self, u: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Only the row of u, (B, 1, D), which attends [u; x] [SimPool Eqs. B45-B48], and maps."""
        v = self.norm1(u)
        y, a = self.attn(v, self.norm1(x), own=v)
        return self.finish(u, y), a

    def among(self, f: Tensor) -> Tensor:
        """Every row: f = [u; x] (B, 1 + N, D)."""
        return self.finish(f, self.attn.among(self.norm1(f)))

    def finish(self, u: Tensor, y: Tensor) -> Tensor:
        g = u + y  # [SimPool Eq. B47]
        u = g + self.mlp(self.norm2(g))  # [SimPool Eq. B48]
        return u


class ClsPool(Pool):
    """What ViT and CaiT share: blocks that turn a learned CLS into the vector."""

    def __init__(self, dim: int, depth: int, make_block: Callable[[], Block], norm: bool) -> None:
        super().__init__(dim)
        self.check_whole(depth=depth)
        self.cls = learned(1, dim)
        self.blocks = nn.ModuleList(make_block() for _ in range(depth))
        self.norm = nn.LayerNorm(dim, 1e-6) if norm else nn.Identity()

    def block(self, t: int) -> Block:
        block = self.blocks[t]
        assert isinstance(block, Block)
        return block

    def row(self, phi_x: Component) -> Algorithm:
        def out(c: Variables, y: Tensor) -> Tensor:
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
            phi_x=phi_x,
            iterations=len(self.blocks),
        )


@register(
    "vit",
    group=4,
    title="ViT",
    source="Dosovitskiy et al., An image is worth 16x16 words, 2021",
    category=True,
    simplified=True,
)
class ViT(ClsPool):
    """Transformer blocks over [CLS; X], the CLS out: F ← F + MSA(LN(F)), F ← F + MLP(LN(F))
    [SimPool Eqs. B39-B48].

    The patches attend in all blocks but the last, where only the CLS is computed. One map per head:
    the CLS of the last block over the patches, which sums to less than one because the CLS attends
    itself as well. `heads` is 4, or the nearest divisor of `dim` below; `norm` adds the LN that
    ends a whole ViT.
    """

    def __init__(
        self,
        dim: int,
        depth: int = 1,
        heads: int | None = None,
        mlp_ratio: float = 4,
        norm: bool = False,
    ) -> None:
        heads = head_count(dim, heads, 4)
        super().__init__(dim, depth, lambda: Block(dim, heads, mlp_ratio), norm)

    def algorithm(self) -> Algorithm:
        def phi_x(c: Variables) -> Tensor:
            is_last = c.t == len(self.blocks) - 1
            return c.x if is_last else self.block(c.t).among(torch.cat([c.u, c.x], 1))[:, 1:]

        return self.row(Component("MLP(MSA(X))", phi_x))

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        u = self.cls.expand(x.shape[0], -1, -1)
        if len(self.blocks) > 1:
            f = torch.cat([u, x], 1)  # (B, 1 + N, D)
            for t in range(len(self.blocks) - 1):
                f = self.block(t).among(f)
            u, x = f[:, :1], f[:, 1:]
        u, a = self.block(-1)(u, x)
        return self.norm(u), a
