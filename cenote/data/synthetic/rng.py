"""Chance that falls the same way on every machine."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")

TURNS = 720  # directions in the table, half a degree apart


class Dice:
    """Draws that use nothing but `Random.random`, the one method whose stream Python promises to keep."""

    def __init__(self, *key: object) -> None:
        self.random = random.Random("/".join(map(str, key))).random

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.random()

    def below(self, count: int) -> int:
        return int(self.random() * count)

    def whole(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return low + self.below(high - low + 1)

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def weighted(self, weights: Sequence[float]) -> int:
        """A position, as often as its weight says."""
        total = 0.0
        for weight in weights:  # Python's `sum` rounds differently since 3.12
            total += weight
        left = self.random() * total
        for place, weight in enumerate(weights):
            left -= weight
            if left < 0:
                return place
        return max(place for place, weight in enumerate(weights) if weight > 0)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in items]


@cache
def direction(half_degrees: int) -> tuple[float, float]:
    """Cosine and sine to six decimals: what is left of them after rounding is the same in every math library."""
    angle = (half_degrees % TURNS) * math.pi * 2 / TURNS
    return round(math.cos(angle), 6), round(math.sin(angle), 6)


@cache
def noise(side: int, cell: int, number: int) -> npt.NDArray[np.int16]:
    """(side, side): smooth values of -128..127 with a wavelength of `cell` pixels; grain if it is 1."""
    n = side // cell + 2
    raw = np.random.PCG64(1_000_003 * number + cell).random_raw(n * n)
    grid = (raw >> np.uint64(56)).astype(np.int32).reshape(n, n) - 128
    if cell == 1:
        return grid[:side, :side].astype(np.int16)
    place, between = np.divmod(np.arange(side), cell)
    between = between.astype(np.int32)
    rows = (grid[place] * (cell - between)[:, None] + grid[place + 1] * between[:, None]) // cell
    both = (rows[:, place] * (cell - between) + rows[:, place + 1] * between) // cell
    return np.asarray(both, np.int16)
