"""One module in training, with all that belongs to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from .config import OptimizationConfig


class TrainState:
    """A module, its optimizer and its best weights so far. Most runs have one; a tournament has many.

    `lr` is its own base rate; `failed` says in a sentence why it left the run.
    """

    def __init__(
        self, name: str, module: nn.Module, settings: OptimizationConfig, lr: float | None = None
    ) -> None:
        self.name, self.module = name, module
        self.lr = settings.lr if lr is None else lr
        self.optimizer = create_optimizer(module, settings, self.lr)
        groups = self.optimizer.param_groups
        self.rates = [
            self.lr * float(group.get("lr_scale", 1.0)) for group in groups
        ]  # layer decay makes them differ
        self.scaler = torch.amp.GradScaler(
            enabled=settings.amp == "fp16", device=device_of(module).type
        )
        self.average = None
        if settings.ema is not None:
            decay = get_ema_multi_avg_fn(settings.ema)
            self.average = AveragedModel(module, multi_avg_fn=decay, use_buffers=True)
        self.best: dict[str, Tensor] = {}
        self.best_score = float("-inf")
        self.best_epoch = -1
        self.scores: list[float] = []  # of epochs that patience and plateau count
        self.failed: str | None = None

    @property
    def judged(self) -> nn.Module:
        """What is validated and kept: the average where there is one."""
        return self.module if self.average is None else self.average.module

    def step(
        self, factor: float, clip: float | None, ready: Callable[[nn.Module], None] | None = None
    ) -> bool:
        """One step along the gradients; not made, and False, where they are not finite. `ready` may change them."""
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.get_total_norm(
            [p.grad for p in self.module.parameters() if p.grad is not None]
        )
        finite = bool(norm.isfinite())
        if finite and clip is not None:
            nn.utils.clip_grads_with_norm_(self.module.parameters(), clip, norm)
        if ready is not None:
            ready(self.module)
        if (
            finite or self.scaler.is_enabled()
        ):  # the scaler leaves such steps out, and tries a smaller scale
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if self.average is not None:
                self.average.update_parameters(self.module)
        self.optimizer.zero_grad(set_to_none=True)
        return finite or self.scaler.is_enabled()

    def keep_if_best(self, score: float, epoch: int) -> None:
        if score >= self.best_score:  # of equals the one that learned longer
            state = self.judged.state_dict()
            self.best = {name: value.detach().cpu().clone() for name, value in state.items()}
            self.best_score, self.best_epoch = score, epoch

    def state(self) -> dict[str, Any]:
        return {
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "best": self.best,
            "best_score": self.best_score,
            "best_epoch": self.best_epoch,
            "scores": self.scores,
            "failed": self.failed,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.best, self.failed = state["best"], state["failed"]
        self.best_score, self.best_epoch = state["best_score"], state["best_epoch"]
        self.scores = list(
            state.get("scores", ())
        )  # a run that is older than they are asks for neither


def create_optimizer(
    module: nn.Module, settings: OptimizationConfig, lr: float
) -> torch.optim.Optimizer:
    """timm's, which knows layers and leaves vectors undecayed."""
    from timm.optim import create_optimizer_v2  # type: ignore[attr-defined]

    options: dict[str, Any] = (
        {"momentum": settings.momentum} if settings.optimizer in ("sgd", "momentum", "lars") else {}
    )
    if settings.optimizer == "adamw":
        options["fused"] = True  # one pass over the weights instead of ten
    optimizer = create_optimizer_v2(
        module,
        opt=settings.optimizer,
        lr=lr,
        weight_decay=settings.weight_decay,
        layer_decay=settings.layer_decay,
        **options,
    )
    for parameters, factor in getattr(module, "own_rates", tuple)():
        _set_apart(optimizer, parameters, factor)
    return optimizer


def _set_apart(
    optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter], factor: float
) -> None:
    """Groups of their own for parameters that learn `factor` times as fast: a metric loss's proxies."""
    own = {id(p) for p in parameters}
    for group in list(optimizer.param_groups):
        mine = [p for p in group["params"] if id(p) in own]
        if mine:
            group["params"] = [p for p in group["params"] if id(p) not in own]
            scale = float(group.get("lr_scale", 1.0)) * factor
            optimizer.add_param_group({**group, "params": mine, "lr_scale": scale})
    optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]


def device_of(module: nn.Module) -> torch.device:
    return next((p.device for p in module.parameters()), torch.device("cpu"))


def active_states(contenders: Iterable[TrainState]) -> list[TrainState]:
    return [contender for contender in contenders if contender.failed is None]
