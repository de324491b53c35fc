"""Learning rate schedules as pure functions of the time and of the scores so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ScheduleName = Literal["cosine", "step", "poly", "plateau", "constant"]


@dataclass(frozen=True)
class Schedule:
    """The factor of the base learning rate: linear warm-up, then the schedule `name`."""

    name: ScheduleName
    epochs: int
    warmup: float = 0.0  # epochs
    floor: float = 0.0  # factor at the end of the cosine
    step_every: float = 30.0  # epochs
    step_factor: float = 0.1  # of a step or a plateau
    power: float = 0.9  # of the polynomial
    plateau: int = 5  # epochs without a new best score

    def factor(self, epoch: float, scores: Sequence[float] = ()) -> float:
        """Return the factor; epoch 2.5 is half-way through the third.

        `scores` of the completed epochs are used by "plateau".
        """
        if epoch < self.warmup:
            return epoch / self.warmup
        done = min((epoch - self.warmup) / max(self.epochs - self.warmup, 1e-12), 1.0)
        if self.name == "cosine":
            return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2
        if self.name == "step":
            return float(self.step_factor ** math.floor(epoch / self.step_every))
        if self.name == "poly":
            return float((1 - done) ** self.power)
        if self.name == "plateau":
            return float(self.step_factor ** count_plateaus(scores, self.plateau))
        return 1.0


def count_plateaus(scores: Sequence[float], patience: int) -> int:
    """Count the runs of `patience` epochs without a new best score."""
    return sum(waited % patience == 0 for waited in epochs_without_gain(scores) if waited)


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


def cosine(start: float, end: float, done: float) -> float:
    """Interpolate from `start` to `end` along a half cosine as `done` goes from 0 to 1."""
    return end + (start - end) * (1 + math.cos(math.pi * min(done, 1.0))) / 2
