"""Random numbers that are the same on every machine and Python version."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")

DIRECTIONS = 720  # in a full turn: half a degree each


class PortableRng:
    """Generator on `Random.random` alone, the only method whose stream Python guarantees."""

    def __init__(self, *key: object) -> None:
        self.random = random.Random("/".join(map(str, key))).random

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self.random()

    def below(self, count: int) -> int:
        return int(self.random() * count)

    def integer(self, low: int, high: int) -> int:
        """Return an integer from low to high, both included."""
        return low + self.below(high - low + 1)

    def choice(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def weighted_index(self, weights: Sequence[float]) -> int:
        """Return an index with probability proportional to its weight."""
        total = 0.0
        for weight in weights:  # Python's `sum` rounds differently since 3.12
            total += weight
        remaining = self.random() * total
        for index, weight in enumerate(weights):
            remaining -= weight
            if remaining < 0:
                return index
        return max(index for index, weight in enumerate(weights) if weight > 0)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        remaining = list(items)
        return [remaining.pop(self.below(len(remaining))) for _ in items]


@cache
def direction(half_degrees: int) -> tuple[float, float]:
    """Return cosine and sine, rounded to six decimals: equal in every math library."""
    angle = (half_degrees % DIRECTIONS) * math.pi * 2 / DIRECTIONS
    return round(math.cos(angle), 6), round(math.sin(angle), 6)


@cache
def noise(side: int, cell: int, number: int) -> npt.NDArray[np.int16]:
    """Return smooth noise (side, side) from -128 to 127 with a wavelength of `cell` pixels."""
    n = side // cell + 2
    raw = np.random.PCG64(1_000_003 * number + cell).random_raw(n * n)
    grid = (raw >> np.uint64(56)).astype(np.int32).reshape(n, n) - 128
    if cell == 1:
        return grid[:side, :side].astype(np.int16)
    index, offset = np.divmod(np.arange(side), cell)
    offset = offset.astype(np.int32)
    rows = (grid[index] * (cell - offset)[:, None] + grid[index + 1] * offset[:, None]) // cell
    values = (rows[:, index] * (cell - offset) + rows[:, index + 1] * offset) // cell
    return np.asarray(values, np.int16)
