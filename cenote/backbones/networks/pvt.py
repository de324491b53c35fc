"""PVT-Small: a pyramid of four stages whose keys are spatially reduced (Wang et al., ICCV 2021)."""

from __future__ import annotations

import torch
from timm.layers.helpers import to_2tuple
from timm.layers.pos_embed import resample_abs_pos_embed
from torch import Tensor, nn
from torch.nn import functional as F

from .network import (
    Block,
    Grid,
    Network,
    init_linear,
    join_heads,
    split_heads,
    to_map,
    to_tokens,
)

# The columns of the paper's Table 1: patch size, channels, heads, MLP ratio, blocks, reduction R.
Row = tuple[int, int, int, int, int, int]
STAGES: tuple[Row, ...] = (
    (4, 64, 1, 8, 3, 8),
    (2, 128, 2, 8, 4, 4),
    (2, 320, 5, 4, 6, 2),
    (2, 512, 8, 4, 3, 1),
)


class SpatialReductionAttention(nn.Module):
    """Attention of all tokens to the map reduced by R in each direction [PVT Eqs. 1-3]."""

    def __init__(self, dim: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.heads, self.reduction = heads, reduction
        self.q, self.kv, self.proj = (nn.Linear(dim, n * dim) for n in (1, 2, 1))
        if reduction > 1:
            self.sr = nn.Conv2d(dim, dim, reduction, reduction)
            self.norm = nn.LayerNorm(dim)

    def forward(self, z: Tensor, grid: Grid) -> Tensor:
        q, source = self.q(z), z
        if self.reduction > 1:
            source = self.norm(to_tokens(self.sr(to_map(z, grid))))
        k, v = self.kv(source).chunk(2, -1)
        q, k, v = (split_heads(x, self.heads) for x in (q, k, v))
        out: Tensor = self.proj(join_heads(F.scaled_dot_product_attention(q, k, v)))
        return out


class Stage(nn.Module):
    """Patch embedding, learned positions of CLS (if any) and patches, and blocks."""

    def __init__(self, row: Row, channels: int, grid: Grid, prefix: int, drop: list[float]) -> None:
        super().__init__()
        patch, dim, heads, ratio, _, reduction = row
        self.grid, self.prefix = grid, prefix  # that the positions are for
        self.proj, self.norm = nn.Conv2d(channels, dim, patch, patch), nn.LayerNorm(dim)
        self.pos_embed = nn.Parameter(torch.zeros(1, prefix + grid[0] * grid[1], dim))
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        self.blocks = nn.ModuleList(
            Block(dim, SpatialReductionAttention(dim, heads, reduction), ratio, p, eps=1e-6)
            for p in drop
        )

    def forward(self, x: Tensor, cls: Tensor | None = None) -> tuple[Tensor, Grid]:
        x = self.proj(x)
        grid = (x.shape[2], x.shape[3])
        z = self.norm(to_tokens(x))
        positions = resample_abs_pos_embed(self.pos_embed, list(grid), list(self.grid), self.prefix)
        z = z + positions[:, self.prefix :]
        if cls is not None:
            cls = cls + positions[:, : cls.shape[1]]  # no token if it was removed
            z = torch.cat([cls.expand(len(z), -1, -1), z], 1)
        for block in self.blocks:
            z = block(z, grid=grid)
        return z, grid


class PvtSmall(Network):
    """Tokens (B, 1 + H W, 512) at stride 32. CLS enters in the last stage."""

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        num_classes: int = 1000,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__(STAGES[-1][1], 32, num_classes)
        drop = torch.linspace(
            0, drop_path_rate, sum(row[4] for row in STAGES), device="cpu"
        ).tolist()
        self.stages = nn.ModuleList()
        grid, channels = to_2tuple(img_size), 3
        for row in STAGES:
            patch, dim, depth = row[0], row[1], row[4]
            grid = (grid[0] // patch, grid[1] // patch)
            prefix = int(row is STAGES[-1])
            self.stages.append(Stage(row, channels, grid, prefix, drop[:depth]))
            channels, drop = dim, drop[depth:]
        self.cls_token = nn.Parameter(torch.zeros(1, 1, self.num_features))
        self.norm = nn.LayerNorm(self.num_features, eps=1e-6)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        self.apply(init_linear)

    @property
    def blocks(self) -> nn.Module:
        """The blocks in which CLS takes part."""
        return self.stages[-1].get_submodule("blocks")

    def forward_features(self, x: Tensor) -> Tensor:
        *stages, last = self.stages
        for stage in stages:
            x = to_map(*stage(x))
        z, _ = last(x, self.cls_token)
        out: Tensor = self.norm(z)
        return out
