import torch
from torch import Tensor, nn

from .attention import head_count
from .base import Grid
from .framework import FEATURES, Algorithm
from .registry import register
from .vit import Block, ClsPool


class ClassBlock(Block):
    """Class attention and MLP, each scaled channel by channel before it is added
    [SimPool Eqs. B45-B51].
    """

    def __init__(self, dim: int, heads: int, mlp_ratio: float, scale: float) -> None:
        super().__init__(dim, heads, mlp_ratio)
        self.gamma1, self.gamma2 = (
            nn.Parameter(torch.full((dim,), float(scale))) for _ in range(2)
        )

    def finish(self, u: Tensor, y: Tensor) -> Tensor:
        g = u + self.gamma1 * y  # Λ_G of [SimPool Eq. B50]
        u = g + self.gamma2 * self.mlp(self.norm2(g))  # Λ_X of [SimPool Eq. B51]
        return u


@register(
    "cait",
    group=4,
    title="CaiT",
    source="Touvron et al., Going deeper with image transformers, 2021",
    category=True,
    simplified=True,
)
class CaiT(ClsPool):
    """Class attention: u ← u + Λ_G CA(LN(u), LN([u; X])), u ← u + Λ_X MLP(LN(u)), X fixed
    [SimPool Eqs. B45-B51].

    u starts as a learned CLS. One map per head, of the last of `depth` blocks, over the patches; it
    sums to less than one because the CLS attends itself as well. `heads` is 4, or the nearest
    divisor of `dim` below; `norm` adds the LN that ends a whole CaiT.
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
        heads = head_count(dim, heads, 4)
        super().__init__(dim, depth, lambda: ClassBlock(dim, heads, mlp_ratio, layer_scale), norm)

    def algorithm(self) -> Algorithm:
        return self.row(FEATURES)

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        u, a = self.block(0)(self.cls.expand(x.shape[0], -1, -1), x)
        for t in range(1, len(self.blocks)):
            u, a = self.block(t)(u, x)
        return self.norm(u), a
