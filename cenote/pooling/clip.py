import torch
import torch.nn.functional as F
from torch import Tensor

from .attention import CrossAttention, attention_row, head_count, learned
from .base import Grid, Pool
from .framework import Algorithm, Component
from .registry import register


@register(
    "clip",
    group=8,
    title="CLIP",
    source="Radford et al., Learning transferable visual models from natural language supervision, 2021",
    category=True,
)
class CLIP(Pool):
    """CLIP's attention pool: the mean token attends itself and X, u = W_U MHA(π_A(X), [π_A(X); X]).

    `pos_grid=(H, W)` adds a learned position to every token and to the mean, resized to the grid at
    hand; the order of the tokens then matters. One map per head, over X, which sums to less than
    one because the mean attends itself. `heads` have 64 channels each, or the nearest above that
    divides `dim`.
    """

    def __init__(
        self,
        dim: int,
        heads: int | None = None,
        out_dim: int | None = None,
        pos_grid: Grid | None = None,
    ) -> None:
        super().__init__(dim, out_dim=out_dim)
        heads = head_count(dim, heads, dim // 64)
        self.attn = CrossAttention(dim, heads, out_dim=self.out_dim, std=dim**-0.5)
        self.pos_grid: Grid | None = None
        self.permutation_invariant = pos_grid is None
        if pos_grid is not None:
            self.check_grid("pos_grid", pos_grid)
            self.pos_grid = (pos_grid[0], pos_grid[1])
            self.pos = learned(1 + pos_grid[0] * pos_grid[1], dim, std=dim**-0.5)

    def algorithm(self) -> Algorithm:
        return attention_row(
            lambda c: self.attn,
            init=Component("π_A(X)", lambda c: self.placed(c.x, c.grid)[0]),
            query=lambda c: c.u,
            keys=lambda c: self.placed(c.x, c.grid)[1],
            own=lambda c: c.u,
            labels=("g_m(W_Q U)", "g_m(W_K [U;X])", "g_m(W_V [U;X])", "W_U g_m⁻¹(Z)"),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        u, x = self.placed(x, grid)
        y: tuple[Tensor, Tensor] = self.attn(u, x, own=u)
        return y

    def placed(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        """The mean token and the tokens, with their positions."""
        u = x.mean(1, keepdim=True)
        if self.pos_grid is None:
            return u, x
        if grid is None and x.shape[1] != self.pos_grid[0] * self.pos_grid[1]:
            raise ValueError(
                f"'clip' has positions on a {self.pos_grid[0]}x{self.pos_grid[1]} grid and got "
                f"{x.shape[1]} tokens: pass their grid, pool(x, grid=(H, W))"
            )
        pos = self.pos[1:]
        if grid is not None and tuple(grid) != self.pos_grid:
            wide = torch.promote_types(pos.dtype, torch.float32)
            image = torch.unflatten(pos.T, 1, self.pos_grid)[None].to(wide)
            image = F.interpolate(image, grid, mode="bicubic", antialias=True)  # (1, D, H, W)
            pos = image[0].flatten(1).T.to(pos.dtype)
        return u + self.pos[:1], x + pos
