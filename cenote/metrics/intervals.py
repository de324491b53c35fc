"""Intervals: Wilson's of a share, bootstrap intervals of means, paired differences of candidates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .arrays import Array, numpy_array


def wilson_interval(share: float, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's interval of a share of `count` images, 95% by default.

    Unlike share ± z standard errors it is right at the ends: 90 of 90 give [0.959, 1].
    """
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    spread = share * (1 - share) / count + (z / (2 * count)) ** 2
    half = z * spread**0.5 / (1 + z * z / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def bootstrap_interval(
    values: Any, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """The percentile interval of the mean of values (n,), drawn with replacement."""
    array = numpy_array(values).astype(np.float64)
    rng = np.random.default_rng(seed)
    means = [array[rng.integers(array.size, size=array.size)].mean() for _ in range(resamples)]
    return percentiles(np.array(means), level)


def behind_best(scores: Array) -> tuple[Array, Array]:
    """Return how far each mean of (candidates, seeds, images) is behind the best, and a margin.

    The means of equal candidates differ by more than the margin in 5% of the experiments with other
    images and seeds, whichever candidates and however many are compared: Tukey's range test. Scores
    are compared image by image, as means over the seeds.
    """
    from scipy.stats import studentized_range, t  # takes half a second

    candidates, seeds, images = scores.shape
    means = scores.mean((1, 2))
    differences = (scores[means.argmax()] - scores).mean(1)  # (candidates, images)
    # One more image on which they differ: a few of them are far from normally distributed.
    variance = (differences.var(1) * images + 1) / images**2
    factor = studentized_range.ppf(0.95, candidates, np.inf) / 2**0.5 if candidates > 1 else 0.0
    if seeds > 1:
        of_seeds = scores.mean(2).var(1, ddof=1) / seeds
        # Few seeds say little about one candidate: at least the average of all.
        of_pair = np.maximum(of_seeds + of_seeds[means.argmax()], 2 * of_seeds.mean())
        variance += of_pair
        # Satterthwaite: as many degrees of freedom as the share of the seeds leaves.
        share = np.maximum(of_pair / variance, 1e-6)
        factor *= t.ppf(0.975, candidates * (seeds - 1) / share**2) / t.ppf(0.975, np.inf)
    return means.max() - means, factor * variance**0.5


def percentiles(samples: Array, level: float) -> tuple[float, float]:
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


class Resamples:
    """Sums over resampled images, image by image: memory does not grow with their number.

    Drawing n of n images with replacement gives each of them about Poisson(1) copies: so each image
    is added to every resample that many times.
    """

    def __init__(self, shape: tuple[int, ...], resamples: int) -> None:
        self.sums, self.counts = np.zeros((resamples, *shape)), np.zeros(resamples)
        self._rng = np.random.default_rng(0)
        self._last: tuple[str | None, Array] = None, np.zeros(resamples)

    def __len__(self) -> int:
        return len(self.counts)

    def add(self, values: Array, names: Iterable[str]) -> None:
        """(n, *shape): one row per image; rows of the same name in sequence are of one image, such
        as one for each of its classes, and are drawn together.
        """
        copies = self._rng.poisson(1.0, (len(self.counts), len(values)))
        for i, name in enumerate(names):
            if name == self._last[0]:
                copies[:, i] = self._last[1]
            self._last = name, copies[:, i]
        self.sums += np.tensordot(copies.astype(np.float64), values.astype(np.float64), 1)
        self.counts += copies.sum(1)

    def means(self) -> Array:
        """(resamples, *shape)"""
        counts = self.counts.reshape(-1, *[1] * (self.sums.ndim - 1))
        return self.sums / np.maximum(counts, 1)
