"""Where the marks of an axis stand, and what is written at them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high` over pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def marks(self, most: int = 8) -> list[float]:
        """Round values inside: 1, 2 and 5 times powers of ten on a logarithmic axis where there is room for them."""
        if not self.log:
            step = round_step((self.high - self.low) / most)
            first = math.ceil(self.low / step - 1e-9)
            return [
                round(i * step, 10) for i in range(first, math.floor(self.high / step + 1e-9) + 1)
            ]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for factors in ((1, 2, 5), (1, 3), (1,)):
            marks = [
                f * 10.0**power
                for power in powers
                for f in factors
                if self.low <= f * 10.0**power <= self.high
            ]
            if len(marks) <= most:
                break
        # Within one octave there may be no round value: then as on a plain axis.
        return marks if len(marks) > 1 else Axis(self.low, self.high, self.start, self.end).marks(4)


def axis_of(
    values: list[float], start: float, end: float, log: bool = False, margin: float = 0.08
) -> Axis:
    """Around these values, with a margin on both sides."""
    low, high = min(values), max(values)
    if log:
        room = max((high / low) ** margin, 1.15)
        return Axis(low / room, high * room, start, end, True)
    room = (high - low) * margin or max(abs(high) * margin, 1.0)
    return Axis(low - room, high + room, start, end)


def round_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(f * power for f in (1, 2, 5, 10) if f * power >= least * (1 - 1e-9))


def short(value: float) -> str:
    """20000 -> 20k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"
