"""Optimizers and schedules of the learning rate: their names, and what they do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

# sgd uses Nesterov momentum, momentum does not; adam adds the weight decay to the gradient.
OptimizerName = Literal["sgd", "momentum", "adamw", "adam", "radam", "lars", "lamb"]
ScheduleName = Literal["cosine", "step", "poly", "plateau", "constant"]
Settings = Any  # config.OptimizationConfig, which imports the names above
Group = dict[str, Any]  # of parameters, with the options of their optimizer


def create_optimizer(module: nn.Module, settings: Settings) -> Optimizer:
    """Create timm's optimizer, which supports layer decay and does not decay vectors.

    Every part of the module may define `lr_factors()`: pairs of parameters and the factor of their
    learning rate. The matrices of its pool have `settings.pool_lr_factor`.
    """
    from timm.optim import create_optimizer_v2  # type: ignore[attr-defined]

    options: dict[str, Any] = {}
    if settings.optimizer in ("sgd", "momentum", "lars"):
        options["momentum"] = settings.momentum
    if settings.optimizer == "adamw":
        options["fused"] = True  # one pass over the weights instead of ten
    optimizer = create_optimizer_v2(
        module,
        opt=settings.optimizer,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        layer_decay=settings.layer_decay,
        **options,
    )
    if settings.optimizer == "lars" and not settings.weight_decay:
        # LARS adapts the steps of all matrices; timm's, by default, of weights that decay.
        matrices = [p for p in module.parameters() if p.ndim > 1]
        _regroup(optimizer, matrices, lambda group: {"always_adapt": True})
    for layer in module.modules():
        for parameters, factor in getattr(layer, "lr_factors", tuple)():
            _scale_lr(optimizer, parameters, factor)
    if settings.pool_lr_factor != 1:
        _scale_lr(optimizer, pool_matrices(module), settings.pool_lr_factor)
    return optimizer


def pool_matrices(module: nn.Module) -> list[nn.Parameter]:
    """Return the weights of a model's pool that are matrices.

    A step of Adam changes every entry by the learning rate, so that the product of a matrix with d
    channels changes up to d times as much: on few images the attention collapses to a point.
    Exponents, biases and norms have no such sums.
    """
    pool = getattr(module, "pool", None)
    parameters = () if pool is None else pool.parameters()
    return [p for p in parameters if p.ndim > 1 and p.requires_grad]


def _scale_lr(optimizer: Optimizer, parameters: Iterable[nn.Parameter], factor: float) -> None:
    """Move parameters to groups with `factor` times the learning rate."""
    _regroup(
        optimizer,
        parameters,
        lambda group: {"lr_scale": float(group.get("lr_scale", 1.0)) * factor},
    )


def _regroup(
    optimizer: Optimizer,
    parameters: Iterable[nn.Parameter],
    changes: Callable[[Group], Group],
) -> None:
    """Move parameters to groups of their own with other options: the changes of their group."""
    ids = {id(p) for p in parameters}
    for group in list(optimizer.param_groups):
        moved = [p for p in group["params"] if id(p) in ids]
        if moved:
            group["params"] = [p for p in group["params"] if id(p) not in ids]
            optimizer.add_param_group({**group, "params": moved, **changes(group)})
    optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]


def lr_factor(settings: Settings, epoch: float, scores: Sequence[float] = ()) -> float:
    """Return the factor of the learning rate: linear warm-up, then the schedule.

    Epoch 2.5 is half-way through the third. "plateau" uses the `scores` of the completed epochs.
    """
    if epoch < settings.warmup:
        return epoch / float(settings.warmup)
    done = min((epoch - settings.warmup) / max(settings.epochs - settings.warmup, 1e-12), 1.0)
    if settings.schedule == "cosine":
        return cosine(1.0, settings.min_lr / (settings.lr or math.inf), done)
    if settings.schedule == "step":
        return float(settings.step_factor ** math.floor(epoch / settings.step_every))
    if settings.schedule == "poly":
        return float((1 - done) ** settings.power)
    if settings.schedule == "plateau":
        # One step after every `plateau` epochs without a new best score.
        waits = epochs_without_gain(scores)
        return float(settings.step_factor ** sum(w % settings.plateau == 0 for w in waits if w))
    return 1.0


def cosine(start: float, end: float, done: float) -> float:
    """Interpolate from `start` to `end` along a half cosine as `done` goes from 0 to 1."""
    return end + (start - end) * (1 + math.cos(math.pi * min(done, 1.0))) / 2


def out_of_patience(scores: Sequence[float], patience: int | None) -> bool:
    """Return whether the last `patience` epochs brought no new best score."""
    if patience is None or not scores:
        return False
    return epochs_without_gain(scores)[-1] >= patience


def epochs_without_gain(scores: Sequence[float]) -> list[int]:
    """Return for each epoch how many epochs ago the best score was reached first."""
    waits, waited, best = [], 0, -math.inf
    for score in scores:
        waited += 1
        if score > best:
            waited, best = 0, score
        waits.append(waited)
    return waits
