"""Learning rate schedules as pure functions of the time and of the scores so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .config import OptimizationConfig

ScheduleName = Literal["cosine", "step", "poly", "plateau", "constant"]


def lr_factor(settings: OptimizationConfig, epoch: float, scores: Sequence[float] = ()) -> float:
    """Return the factor of the base learning rate; epoch 2.5 is half-way through the third.

    `scores` of the completed epochs are used by the schedule "plateau".
    """
    if epoch < settings.warmup:
        return epoch / settings.warmup
    duration = max(settings.epochs - settings.warmup, 1e-12)
    done = min((epoch - settings.warmup) / duration, 1.0)
    if settings.schedule == "cosine":
        floor = settings.min_lr / settings.lr if settings.lr else 0.0
        return floor + (1 - floor) * (1 + math.cos(math.pi * done)) / 2
    if settings.schedule == "step":
        return float(settings.step_factor ** math.floor(epoch / settings.step_every))
    if settings.schedule == "poly":
        return float((1 - done) ** settings.power)
    if settings.schedule == "plateau":
        return float(settings.step_factor ** count_plateaus(scores, settings.plateau))
    return 1.0


def count_plateaus(scores: Sequence[float], patience: int) -> int:
    """Count the runs of `patience` epochs without a new best score."""
    plateaus, waited, best = 0, 0, -math.inf
    for score in scores:
        waited, best = (0, score) if score > best else (waited + 1, best)
        if waited == patience:
            plateaus, waited = plateaus + 1, 0
    return plateaus


def out_of_patience(scores: Sequence[float], patience: int | None) -> bool:
    """Return whether the last `patience` epochs brought no new best score."""
    waited, best = 0, -math.inf
    for score in scores:
        waited, best = (0, score) if score > best else (waited + 1, best)
    return patience is not None and waited >= patience


def cosine(start: float, end: float, done: float) -> float:
    """Interpolate from `start` to `end` along a half cosine as `done` goes from 0 to 1."""
    return end + (start - end) * (1 + math.cos(math.pi * min(done, 1.0))) / 2
