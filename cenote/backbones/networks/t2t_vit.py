"""T2T-ViT-14: a ViT behind a Tokens-to-Token module (Yuan et al., ICCV 2021)."""

from __future__ import annotations

import math

import torch
from timm.layers.helpers import to_2tuple
from timm.layers.pos_embed import resample_abs_pos_embed
from timm.models.vision_transformer import Block
from torch import Tensor, nn
from torch.nn import functional as F

from .network import Grid, Network, init_linear, to_map

TOKEN_DIM = 64
DIM, DEPTH, HEADS, MLP_RATIO = 384, 14, 6, 3  # the paper's Table 1


class TokenPerformer(nn.Module):
    """One-head attention in linear time by positive random features (Choromanski et al., 2021):
    softmax(q k^T) is about phi(q) phi(k)^T with phi(x) = exp(w x - |x|^2 / 2) / sqrt(m).

    The skip connection comes from the values, since the tokens are wider than the attention.
    """

    def __init__(self, dim: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(TOKEN_DIM)
        self.kqv, self.proj = nn.Linear(dim, 3 * TOKEN_DIM), nn.Linear(TOKEN_DIM, TOKEN_DIM)
        self.dropout = nn.Dropout(dropout)
        self.mlp = nn.Sequential(
            nn.Linear(TOKEN_DIM, TOKEN_DIM), nn.GELU(), nn.Linear(TOKEN_DIM, TOKEN_DIM)
        )
        m = TOKEN_DIM // 2
        w = nn.init.orthogonal_(torch.empty(m, TOKEN_DIM)) * math.sqrt(m)
        self.w = nn.Parameter(w, requires_grad=False)  # (m, TOKEN_DIM)

    def features(self, x: Tensor) -> Tensor:
        """phi(x), (B, N, m)."""
        exponent: Tensor = x @ self.w.T - x.square().sum(-1, keepdim=True) / 2
        return exponent.exp() / math.sqrt(len(self.w))

    def attend(self, z: Tensor) -> Tensor:
        k, q, v = self.kqv(z).chunk(3, -1)
        with torch.autocast(z.device.type, enabled=False):  # exp overflows in half precision
            q, k = self.features(q.float()), self.features(k.float())
            y = q @ (k.mT @ v.float())  # (B, N, TOKEN_DIM)
            y = y / (q @ k.sum(1, keepdim=True).mT + 1e-8)
        out: Tensor = v + self.dropout(self.proj(y))
        return out

    def forward(self, z: Tensor) -> Tensor:
        z = self.attend(self.norm1(z))
        z = z + self.dropout(self.mlp(self.norm2(z)))
        return z


class TokensToToken(nn.Module):
    """Overlapping patches become tokens three times, attention in between: (B, H W, 384)."""

    patch_size = 16  # 4 x 2 x 2

    def __init__(self, img_size: int | tuple[int, int]) -> None:
        super().__init__()
        self.img_size: Grid = to_2tuple(img_size)
        self.attention1 = TokenPerformer(3 * 7 * 7)
        self.attention2 = TokenPerformer(TOKEN_DIM * 3 * 3)
        self.project = nn.Linear(TOKEN_DIM * 3 * 3, DIM)

    def forward(self, x: Tensor) -> tuple[Tensor, Grid]:
        tokens, grid = soft_split(x, 7, 4, 2)
        tokens, grid = soft_split(to_map(self.attention1(tokens), grid), 3, 2, 1)
        tokens, grid = soft_split(to_map(self.attention2(tokens), grid), 3, 2, 1)
        return self.project(tokens), grid


def soft_split(x: Tensor, kernel: int, stride: int, padding: int) -> tuple[Tensor, Grid]:
    """Return overlapping patches as tokens (B, H W, D kernel^2), and their grid."""
    h, w = ((side + 2 * padding - kernel) // stride + 1 for side in x.shape[2:])
    return F.unfold(x, kernel, 1, padding, stride).mT, (h, w)


def sinusoids(n: int, dim: int) -> Tensor:
    """Fixed positions (1, n, dim) of a sequence (Vaswani et al., 2017)."""
    angle = torch.arange(n)[:, None] / 10000 ** (torch.arange(0, dim, 2) / dim)  # (n, dim / 2)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[None]


class T2TViT14(Network):
    """Tokens (B, 1 + H W, 384) at stride 16."""

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        num_classes: int = 1000,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__(DIM, 16, num_classes)
        self.patch_embed = TokensToToken(img_size)
        h, w = self.patch_embed.img_size
        self.grid = (h // 16, w // 16)  # that the positions are for
        positions = sinusoids(1 + self.grid[0] * self.grid[1], DIM)
        self.register_buffer("positions", positions, persistent=False)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, DIM))
        drop = torch.linspace(0, drop_path_rate, DEPTH, device="cpu").tolist()
        self.blocks = nn.ModuleList(
            Block(DIM, HEADS, MLP_RATIO, drop_path=p, norm_layer=nn.LayerNorm) for p in drop
        )
        self.norm = nn.LayerNorm(DIM)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        self.apply(init_linear)

    def forward_features(self, x: Tensor) -> Tensor:
        patches, grid = self.patch_embed(x)
        positions = resample_abs_pos_embed(self.positions, list(grid), list(self.grid))
        cls = self.cls_token + positions[:, : self.cls_token.shape[1]]  # none if it was removed
        z = torch.cat([cls.expand(len(x), -1, -1), patches + positions[:, 1:]], 1)
        for block in self.blocks:
            z = block(z)
        out: Tensor = self.norm(z)
        return out
