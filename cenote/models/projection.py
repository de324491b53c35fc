"""What self-supervised training puts behind the vector, and takes away afterwards."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm


class DinoHead(nn.Module):
    """DINO's: an MLP, l2, and a last layer whose rows have a length of their own, or length one
    (`fixed_length`).

    Checkpoints of the old weight norm (`weight_g`, `weight_v`) and of the parametrised one both
    load.
    """

    def __init__(
        self,
        dim: int,
        out: int = 65536,
        hidden: int = 2048,
        bottleneck: int = 256,
        layers: int = 3,
        batch_norm: bool = False,
        fixed_length: bool = True,
    ) -> None:
        super().__init__()
        sizes = [dim, *[hidden] * (layers - 1), bottleneck]
        self.mlp = _mlp(sizes, nn.GELU, batch_norm)
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
        self.last_layer = weight_norm(nn.Linear(bottleneck, out, bias=False))
        length = self.last_layer.parametrizations.weight.original0
        nn.init.ones_(length)
        length.requires_grad_(not fixed_length)
        self.register_load_state_dict_pre_hook(_new_names)  # type: ignore[no-untyped-call]

    def forward(self, u: Tensor) -> Tensor:
        logits: Tensor = self.last_layer(F.normalize(self.mlp(u), dim=-1))
        return logits


class MocoHead(nn.Sequential):
    """MoCo-v3's projector and predictor: linear layers and BatchNorm, the last one without scale
    and shift.
    """

    def __init__(self, dim: int, out: int = 256, hidden: int = 4096, layers: int = 3) -> None:
        sizes = [dim, *[hidden] * (layers - 1), out]
        super().__init__(*_mlp(sizes, nn.ReLU, True, bias=False), nn.BatchNorm1d(out, affine=False))


def _mlp(
    sizes: list[int], activation: type[nn.Module], batch_norm: bool, bias: bool = True
) -> nn.Sequential:
    """Linear layers with an activation, and perhaps a BatchNorm, between them."""
    steps: list[nn.Module] = []
    for place, (before, after) in enumerate(pairwise(sizes)):
        steps.append(nn.Linear(before, after, bias=bias))
        if place < len(sizes) - 2:
            steps += [nn.BatchNorm1d(after)] * batch_norm + [activation()]
    return nn.Sequential(*steps)


def _new_names(module: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    for old, new in (("weight_g", "original0"), ("weight_v", "original1")):
        if (name := f"{prefix}last_layer.{old}") in state:
            state[f"{prefix}last_layer.parametrizations.weight.{new}"] = state.pop(name)
