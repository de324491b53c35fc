"""What the networks share: the interface of timm's models, and the transformer block."""

from __future__ import annotations

from typing import Any, ClassVar

from timm.layers.drop import DropPath
from timm.layers.mlp import Mlp
from torch import Tensor, nn

Grid = tuple[int, int]


class Network(nn.Module):
    """A network up to its last tokens or map, with the attributes that a `Backbone` reads."""

    pretrained_cfg: ClassVar[dict[str, Any]] = {}

    def __init__(self, dim: int, stride: int, num_classes: int) -> None:
        super().__init__()
        self.num_features = dim
        self.feature_info = [{"num_chs": dim, "reduction": stride}]
        self.head: nn.Module = nn.Linear(dim, num_classes)

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str = "") -> None:
        self.head = nn.Identity()
        if num_classes:
            self.head = nn.Linear(self.num_features, num_classes)

    def no_weight_decay(self) -> set[str]:
        return {"cls_token"}


class Block(nn.Module):
    """A pre-norm transformer block whose attention needs the grid of the patches.

    The layers have the names of timm's block, which SAR's last block takes over.
    """

    def __init__(
        self,
        dim: int,
        attn: nn.Module,
        mlp_ratio: int = 4,
        drop_path: float = 0.0,
        eps: float = 1e-5,
        act: type[nn.Module] = nn.GELU,
    ) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim, eps), attn
        self.norm2, self.mlp = nn.LayerNorm(dim, eps), Mlp(dim, mlp_ratio * dim, act_layer=act)
        self.ls1, self.ls2 = nn.Identity(), nn.Identity()  # no LayerScale
        self.drop_path1, self.drop_path2 = DropPath(drop_path), DropPath(drop_path)

    def forward(self, z: Tensor, grid: Grid) -> Tensor:
        z = z + self.drop_path1(self.attn(self.norm1(z), grid=grid))
        z = z + self.drop_path2(self.mlp(self.norm2(z)))
        return z


def to_map(tokens: Tensor, grid: Grid) -> Tensor:
    """(B, H W, D) -> (B, D, H, W)."""
    x: Tensor = tokens.mT.unflatten(2, grid)
    return x


def to_tokens(x: Tensor) -> Tensor:
    """(B, D, H, W) -> (B, H W, D)."""
    return x.flatten(2).mT


def split_heads(tokens: Tensor, heads: int) -> Tensor:
    """(B, N, D) -> (B, heads, N, D / heads)."""
    x: Tensor = tokens.unflatten(2, (heads, -1))
    return x.transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """(B, heads, N, d) -> (B, N, heads d)."""
    return x.transpose(1, 2).flatten(2)


def init_linear(module: nn.Module) -> None:
    """Initialize as DeiT does, for `Module.apply`; other layers keep PyTorch's defaults."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
