"""BN-Inception, the network of the BatchNorm paper (Ioffe and Szegedy, ICML 2015)."""

from __future__ import annotations

import re
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from .network import Network


class Widths(NamedTuple):
    """A row of the paper's Figure 5: the channels of the four branches; 0 is a missing layer."""

    one: int  # 1x1
    reduce: int  # 1x1 before the 3x3
    three: int
    double_reduce: int  # 1x1 before the two 3x3
    double: int
    pool: str
    proj: int  # 1x1 after the pool
    stride: int = 1


INCEPTIONS = {
    "3a": Widths(64, 64, 64, 64, 96, "avg", 32),
    "3b": Widths(64, 64, 96, 64, 96, "avg", 64),
    "3c": Widths(0, 128, 160, 64, 96, "max", 0, stride=2),
    "4a": Widths(224, 64, 96, 96, 128, "avg", 128),
    "4b": Widths(192, 96, 128, 96, 128, "avg", 128),
    "4c": Widths(160, 128, 160, 128, 160, "avg", 128),
    "4d": Widths(96, 128, 192, 160, 192, "avg", 128),
    "4e": Widths(0, 128, 192, 192, 256, "max", 0, stride=2),
    "5a": Widths(352, 192, 320, 160, 224, "avg", 128),
    "5b": Widths(352, 192, 320, 192, 224, "max", 128),
}


class Conv(nn.Sequential):
    """Convolution with a bias, as in the published weights, BatchNorm and ReLU."""

    def __init__(self, channels: int, dim: int, kernel: int, stride: int = 1) -> None:
        conv = nn.Conv2d(channels, dim, kernel, stride, kernel // 2)
        super().__init__(conv, nn.BatchNorm2d(dim), nn.ReLU(inplace=True))


class Inception(nn.Module):
    """Four branches over one map, their channels side by side."""

    def __init__(self, channels: int, row: Widths) -> None:
        super().__init__()
        branches: dict[str, nn.Module] = {}
        if row.one:
            branches["one"] = Conv(channels, row.one, 1)
        branches["three"] = nn.Sequential(
            Conv(channels, row.reduce, 1), Conv(row.reduce, row.three, 3, row.stride)
        )
        branches["two"] = nn.Sequential(
            Conv(channels, row.double_reduce, 1),
            Conv(row.double_reduce, row.double, 3),
            Conv(row.double, row.double, 3, row.stride),
        )
        pool: nn.Module = nn.AvgPool2d(3, 1, padding=1)
        if row.pool == "max":  # Caffe rounds the size up, which replaces the padding of a stride
            pool = nn.MaxPool2d(3, row.stride, padding=2 - row.stride, ceil_mode=True)
        branches["pool"] = pool
        if row.proj:
            branches["pool"] = nn.Sequential(pool, Conv(channels, row.proj, 1))
        self.branches = nn.ModuleDict(branches)
        self.dim = row.one + row.three + row.double + (row.proj or channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches.values()], 1)


class BNInception(Network):
    """Map (B, 1024, H, W) at stride 32."""

    # The published weights are for BGR values from 0 to 255 without a scale; the order of the
    # channels is changed when they are loaded.
    pretrained_cfg: ClassVar[dict[str, Any]] = {
        "interpolation": "bilinear",
        "mean": (128 / 255, 117 / 255, 104 / 255),
        "std": (1 / 255, 1 / 255, 1 / 255),
    }

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__(1024, 32, num_classes)
        self.stem = nn.Sequential(
            Conv(3, 64, 7, 2),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            Conv(64, 64, 1),
            Conv(64, 192, 3),
            nn.MaxPool2d(3, 2, ceil_mode=True),
        )
        self.inceptions = nn.ModuleDict()
        channels = 192
        for name, row in INCEPTIONS.items():
            inception = Inception(channels, row)
            self.inceptions[name], channels = inception, inception.dim

    def forward_features(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for inception in self.inceptions.values():
            x = inception(x)
        return x


# The layers of the published weights (Caffe's names) and ours.
STEM = {"conv1_7x7_s2": "stem.0", "conv2_3x3_reduce": "stem.2", "conv2_3x3": "stem.3"}
BRANCHES = {
    "1x1": "one",
    "3x3_reduce": "three.0",
    "3x3": "three.1",
    "double_3x3_reduce": "two.0",
    "double_3x3_1": "two.1",
    "double_3x3_2": "two.2",
    "pool_proj": "pool.1",
}


def checkpoint_filter_fn(state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Rename the published weights, and turn the first convolution from BGR to RGB."""
    renamed = {}
    for name, value in state.items():
        layer, _, kind = name.rpartition(".")
        part = int(layer.endswith("_bn"))
        layer = layer.removesuffix("_bn")
        if layer == "last_linear":
            renamed[f"head.{kind}"] = value
        elif layer in STEM:
            renamed[f"{STEM[layer]}.{part}.{kind}"] = value
        else:
            match = re.fullmatch(r"inception_(\d\w)_(.*)", layer)
            if match is None:
                raise KeyError(layer)
            path = f"inceptions.{match[1]}.branches.{BRANCHES[match[2]]}"
            renamed[f"{path}.{part}.{kind}"] = value
    first = "stem.0.0.weight"
    return renamed | {first: renamed[first].flip(1)}
