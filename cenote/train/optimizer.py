"""Optimizers: their names, and how one is created for a module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

# sgd uses Nesterov momentum, momentum does not; adam adds the weight decay to the gradient.
OptimizerName = Literal["sgd", "momentum", "adamw", "adam", "lars", "lamb"]


def create_optimizer(
    module: nn.Module,
    name: OptimizerName,
    lr: float,
    weight_decay: float,
    momentum: float,
    layer_decay: float | None = None,
) -> Optimizer:
    """Create timm's optimizer, which supports layer decay and does not decay vectors.

    A module may define `lr_factors()`: pairs of parameters and the factor of their learning rate.
    """
    from timm.optim import create_optimizer_v2  # type: ignore[attr-defined]

    options: dict[str, Any] = {}
    if name in ("sgd", "momentum", "lars"):
        options["momentum"] = momentum
    if name == "adamw":
        options["fused"] = True  # one pass over the weights instead of ten
    optimizer = create_optimizer_v2(
        module,
        opt=name,
        lr=lr,
        weight_decay=weight_decay,
        layer_decay=layer_decay,
        **options,
    )
    for parameters, factor in getattr(module, "lr_factors", tuple)():
        _scale_lr(optimizer, parameters, factor)
    return optimizer


def _scale_lr(optimizer: Optimizer, parameters: Iterable[nn.Parameter], factor: float) -> None:
    """Move parameters to groups with `factor` times the learning rate."""
    ids = {id(p) for p in parameters}
    for group in list(optimizer.param_groups):
        scaled = [p for p in group["params"] if id(p) in ids]
        if scaled:
            group["params"] = [p for p in group["params"] if id(p) not in ids]
            scale = float(group.get("lr_scale", 1.0)) * factor
            optimizer.add_param_group({**group, "params": scaled, "lr_scale": scale})
    optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]
