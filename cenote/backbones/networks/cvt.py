"""CvT-13: a transformer with convolutional tokens and projections (Wu et al., ICCV 2021)."""

from __future__ import annotations

import torch
from timm.layers import QuickGELU
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

# The columns of the paper's Table 2: kernel, stride and padding of the tokens, channels, heads,
# blocks.
STAGES = ((7, 4, 2, 64, 1, 1), (3, 2, 1, 192, 3, 2), (3, 2, 1, 384, 6, 10))
KEY_STRIDE = 2  # keys and values are a map of half the side


class ConvProjection(nn.Module):
    """Depth-wise 3 x 3 convolution and BatchNorm on the patches, then a linear layer on all
    tokens [CvT Eq. 2].
    """

    def __init__(self, dim: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(dim, dim, 3, stride, padding=1, groups=dim, bias=False)
        self.bn, self.linear = nn.BatchNorm2d(dim), nn.Linear(dim, dim)

    def forward(self, z: Tensor, grid: Grid) -> Tensor:
        prefix = z.shape[1] - grid[0] * grid[1]  # CLS is not convolved
        patches = to_tokens(self.bn(self.conv(to_map(z[:, prefix:], grid))))
        out: Tensor = self.linear(torch.cat([z[:, :prefix], patches], 1))
        return out


class ConvAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = dim**-0.5  # of all heads together, as in the released program
        self.q = ConvProjection(dim, 1)
        self.k, self.v = ConvProjection(dim, KEY_STRIDE), ConvProjection(dim, KEY_STRIDE)
        self.proj = nn.Linear(dim, dim)

    def forward(self, z: Tensor, grid: Grid) -> Tensor:
        q, k, v = (split_heads(part(z, grid), self.heads) for part in (self.q, self.k, self.v))
        out = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        projected: Tensor = self.proj(join_heads(out))
        return projected


class CvT13(Network):
    """Tokens (B, 1 + H W, 384) at stride 16. CLS enters in the last stage; there are no positions."""

    key_stride = KEY_STRIDE

    def __init__(self, num_classes: int = 1000, drop_path_rate: float = 0.0) -> None:
        super().__init__(STAGES[-1][3], 16, num_classes)
        self.tokenizers, self.norms, self.stages = (nn.ModuleList() for _ in range(3))
        channels = 3
        for kernel, stride, padding, dim, heads, depth in STAGES:
            self.tokenizers.append(nn.Conv2d(channels, dim, kernel, stride, padding))
            self.norms.append(nn.LayerNorm(dim))
            # Only the last stage drops paths.
            peak = drop_path_rate if dim == self.num_features else 0.0
            self.stages.append(
                nn.ModuleList(
                    Block(dim, ConvAttention(dim, heads), drop_path=p, act=QuickGELU)
                    for p in torch.linspace(0, peak, depth, device="cpu").tolist()
                )
            )
            channels = dim
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.norm = nn.LayerNorm(dim)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        self.apply(init_linear)

    @property
    def blocks(self) -> nn.Module:
        """The blocks in which CLS takes part."""
        return self.stages[-1]

    def forward_features(self, x: Tensor) -> Tensor:
        for tokenizer, norm, blocks in zip(self.tokenizers, self.norms, self.stages, strict=True):
            x = tokenizer(x)
            z, grid = norm(to_tokens(x)), (x.shape[2], x.shape[3])
            if blocks is self.blocks:
                z = torch.cat([self.cls_token.expand(len(x), -1, -1), z], 1)
            for block in blocks:  # type: ignore[attr-defined]
                z = block(z, grid=grid)
            if blocks is not self.blocks:
                x = to_map(z, grid)
        out: Tensor = self.norm(z)
        return out
