"""State of one model in training: optimizer, moving average, best weights and scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ..predict.distributed import device_of
from .config import OptimizationConfig, Options
from .optimizer import create_optimizer

PLAIN = ("best", "best_score", "best_epoch", "best_metrics", "scores", "failed")


class TrainState:
    """A module with its optimizer and its best weights so far; a run trains one or several.

    `failed` is the reason it left the run.
    """

    def __init__(self, name: str, module: nn.Module, settings: OptimizationConfig) -> None:
        self.name, self.module, self.lr = name, module, settings.lr
        self.optimizer = create_optimizer(module, settings)
        # One per parameter group: they differ with layer decay.
        self.base_lrs = [
            self.lr * float(group.get("lr_scale", 1.0)) for group in self.optimizer.param_groups
        ]
        device = device_of(module).type
        self.scaler = torch.amp.GradScaler(enabled=settings.amp == "fp16", device=device)
        self.ema = None
        if settings.ema is not None:
            average = get_ema_multi_avg_fn(settings.ema)
            self.ema = AveragedModel(module, multi_avg_fn=average, use_buffers=True)
        self.best: dict[str, Tensor] = {}
        self.best_score = float("-inf")
        self.best_epoch = -1
        self.best_metrics: dict[str, float] = {}
        self.scores: list[float] = []  # of epochs that count for patience and plateau
        self.failed: str | None = None

    @property
    def evaluated(self) -> nn.Module:
        """The module that is validated and kept: the moving average if there is one."""
        return self.module if self.ema is None else self.ema.module

    def step(
        self, factor: float, clip: float | None, before_update: Callable[[nn.Module], None]
    ) -> bool:
        """Make an optimizer step; return False, without a step, if the gradients are not finite."""
        for group, base_lr in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = base_lr * factor
        self.scaler.unscale_(self.optimizer)
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        finite = bool(norm.isfinite())
        if finite and clip is not None:
            nn.utils.clip_grads_with_norm_(self.module.parameters(), clip, norm)
        before_update(self.module)
        # A gradient scaler skips steps that are not finite, and lowers its scale.
        valid = finite or self.scaler.is_enabled()
        if valid:
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if self.ema is not None:
                self.ema.update_parameters(self.module)
        self.optimizer.zero_grad(set_to_none=True)
        return valid

    def load_best(self) -> nn.Module:
        """Return the module with its best weights, for evaluation."""
        self.module.load_state_dict(self.best)
        return self.module.eval()

    def keep_if_best(self, score: float, epoch: int, metrics: dict[str, float]) -> None:
        """Keep a copy of the weights if no epoch was better; ties keep the later epoch."""
        if score >= self.best_score:
            weights = self.evaluated.state_dict()
            self.best = {name: value.detach().cpu().clone() for name, value in weights.items()}
            self.best_score, self.best_epoch, self.best_metrics = score, epoch, dict(metrics)

    def state_dict(self) -> Options:
        return {
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "average": self.ema and self.ema.state_dict(),
            **{name: getattr(self, name) for name in PLAIN},
        }

    def load_state_dict(self, state: Options) -> None:
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        if self.ema is not None:
            self.ema.load_state_dict(state["average"])
        for name in PLAIN:
            setattr(self, name, state[name])


def active_states(states: Iterable[TrainState]) -> list[TrainState]:
    """Return the states that have not failed."""
    return [state for state in states if state.failed is None]


class LastEpochState(TrainState):
    """Keeps the last epoch, as published, or for lack of validation images."""

    def keep_if_best(self, score: float, epoch: int, metrics: dict[str, float]) -> None:
        super().keep_if_best(float(epoch), epoch, metrics)
