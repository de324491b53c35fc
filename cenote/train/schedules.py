"""The learning rate as a pure function of time, and of the scores so far."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .config import OptimizationConfig


def rate_factor(settings: OptimizationConfig, epoch: float, scores: Sequence[float] = ()) -> float:
    """What the base rate is multiplied by, `epoch` being a fraction of the run: 2.5 is half-way through the third.

    `scores`: of the epochs that are done, for the schedule "plateau".
    """
    if epoch < settings.warmup:
        return epoch / settings.warmup
    left = max(settings.epochs - settings.warmup, 1e-12)
    done = min((epoch - settings.warmup) / left, 1.0)
    if settings.schedule == "cosine":
        floor = settings.min_lr / settings.lr if settings.lr else 0.0
        return floor + (1 - floor) * (1 + math.cos(math.pi * done)) / 2
    if settings.schedule == "step":
        return float(settings.step_factor ** math.floor(epoch / settings.step_every))
    if settings.schedule == "poly":
        return float((1 - done) ** settings.power)
    if settings.schedule == "plateau":
        return float(settings.step_factor ** plateaus(scores, settings.plateau))
    return 1.0


def plateaus(scores: Sequence[float], patience: int) -> int:
    """How often `patience` epochs in a row, counted anew after each time, brought no score above all before them."""
    found, waited, best = 0, 0, -math.inf
    for score in scores:
        waited, best = (0, score) if score > best else (waited + 1, best)
        if waited == patience:
            found, waited = found + 1, 0
    return found


def gave_up(scores: Sequence[float], patience: int | None) -> bool:
    """Whether the last `patience` epochs brought no score above all before them."""
    waited, best = 0, -math.inf
    for score in scores:
        waited, best = (0, score) if score > best else (waited + 1, best)
    return patience is not None and waited >= patience


def cosine(start: float, end: float, done: float) -> float:
    """From `start` to `end` as `done` goes from 0 to 1."""
    return end + (start - end) * (1 + math.cos(math.pi * min(done, 1.0))) / 2
