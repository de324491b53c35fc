"""A feature pyramid on a backbone: one of its levels feeds the pool, finer than the last stage and
as deep.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from torch import Tensor, nn

from ...backbones import Backbone, Features

LEVELS = ("P2", "P3", "P4", "P5")


class Pyramid(Backbone):
    """C2..C5 of a backbone, and torchvision's FeaturePyramidNetwork over them; `level` is what it
    gives.

    The backbone's own last norm and classifier do not fit the pyramid's channels and are dropped.
    """

    def __init__(self, backbone: Backbone, level: str, dim: int = 512) -> None:
        if level not in LEVELS:
            raise ValueError(f"fpn is one of {', '.join(LEVELS)}, got '{level}'")
        if dim < 1:
            raise ValueError(f"fpn_dim must be at least 1, got {dim}")
        from torchvision.ops import FeaturePyramidNetwork

        model: Any = backbone.model
        indices, channels = _stages(backbone)
        super().__init__(model, backbone.name, backbone.preprocessing)
        self.level, self.indices, self.dim = level, indices, dim
        model.prune_intermediate_layers(self.indices, prune_norm=True, prune_head=True)
        self.fpn = FeaturePyramidNetwork(channels[LEVELS.index(level) :], dim)
        # Levels finer than the chosen one would be computed for nobody: the pyramid starts at it.
        # So do its output convolutions: those of the coarser levels are never asked.
        for i in range(1, len(self.fpn.layer_blocks)):
            self.fpn.layer_blocks[i] = nn.Identity()

    @property
    def has_cls(self) -> bool:
        return False

    def classifier(self) -> nn.Linear | None:
        return None

    def final_norm(self) -> nn.Module | None:
        return None

    def forward(self, images: Tensor) -> Features:
        model: Any = self.model
        maps = model.forward_intermediates(images, indices=self.indices, intermediates_only=True)
        levels = maps[LEVELS.index(self.level) :]
        x = self.fpn(OrderedDict((str(i), m) for i, m in enumerate(levels)))["0"]  # (B, dim, H, W)
        return Features(x.flatten(2).transpose(1, 2), (x.shape[2], x.shape[3]))


def _stages(backbone: Backbone) -> tuple[list[int], list[int]]:
    """Which of timm's intermediate maps are C2..C5, and their channels."""
    model: Any = backbone.model
    info = list(getattr(model, "feature_info", None) or [])
    able = hasattr(model, "forward_intermediates") and hasattr(model, "prune_intermediate_layers")
    strides = [stage["reduction"] for stage in info][-4:]
    if (
        not able
        or len(info) < 4
        or strides[0] != 4
        or strides[1] != 8
        or sorted(strides) != strides
    ):
        raise ValueError(
            f"'{backbone.name}' has no stages of stride 4, 8, 16 and 32 to build a pyramid on: "
            "ResNet, ConvNeXt, EfficientNet, Swin and their kin have"
        )
    return list(range(len(info) - 4, len(info))), [stage["num_chs"] for stage in info[-4:]]
