"""The learning rate as a pure function of time."""

from __future__ import annotations

import math

from .settings import Settings


def rate_factor(settings: Settings, epoch: float) -> float:
    """What the base rate is multiplied by, `epoch` being a fraction of the run: 2.5 is half-way through the third."""
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
    return 1.0


def cosine(start: float, end: float, done: float) -> float:
    """From `start` to `end` as `done` goes from 0 to 1."""
    return end + (start - end) * (1 + math.cos(math.pi * min(done, 1.0))) / 2
