"""ResNet-20 for CIFAR: three stages of three blocks (He et al., CVPR 2016, Section 4.2)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from .network import Network


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions; the shortcut has no weights: zeros fill the new channels (option A)."""

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()
        self.stride, self.new_channels = dim // channels, dim - channels
        self.conv1 = nn.Conv2d(channels, dim, 3, self.stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(dim, dim, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(dim), nn.BatchNorm2d(dim)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        x = F.pad(x[..., :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))
        out: Tensor = (x + y).relu()
        return out


class ResNet20(Network):
    """Map (B, 64, H, W) at stride 4: 8 x 8 for images of 32 pixels."""

    pretrained_cfg: ClassVar[dict[str, Any]] = {
        "input_size": (3, 32, 32),
        "crop_pct": 1.0,
        "mean": (0.4914, 0.4822, 0.4465),
        "std": (0.2470, 0.2435, 0.2616),
    }

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__(64, 4, num_classes)
        self.conv, self.bn = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        widths = [16] * 4 + [32] * 3 + [64] * 3
        self.layers = nn.Sequential(*(ResidualBlock(*pair) for pair in pairwise(widths)))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward_features(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(self.bn(self.conv(x)).relu())
        return out
