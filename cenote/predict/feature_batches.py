"""Batches of cached features, for training and for evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from torch import Tensor

from ..backbones import Features
from ..data.samplers import SeededBatchSampler
from .distributed import rank, world
from .feature_cache import CachedFeatures


class FeatureBatch(NamedTuple):
    features: Features
    labels: Tensor
    indices: list[int]


class FeatureBatches:
    """Loader of cached features that reads the next batch while the current one is used."""

    def __init__(
        self,
        cached: CachedFeatures,
        batch: int,
        shuffle: bool = False,
        seed: int = 0,
        order: SeededBatchSampler | None = None,
    ) -> None:
        self.cached = cached
        if order is None:
            share = max(min(batch, len(cached)) // world(), 1)
            drop_last = shuffle and world() > 1
            order = SeededBatchSampler(
                len(cached), share, shuffle, seed, drop_last, rank(), world()
            )
        self.order = order

    def __len__(self) -> int:
        return len(self.order)

    def seek(self, epoch: int, batch: int = 0) -> None:
        """Start the next pass at this batch of this epoch."""
        self.order.epoch, self.order.start = epoch, batch

    def __iter__(self) -> Iterator[FeatureBatch]:
        batches = iter(self.order)
        self.order.start = 0
        with ThreadPoolExecutor(1) as thread:
            pending = None
            for positions in batches:
                upcoming = thread.submit(self._read, [index for _, index in positions])
                if pending is not None:
                    yield pending.result()
                pending = upcoming
            if pending is not None:
                yield pending.result()

    def _read(self, indices: list[int]) -> FeatureBatch:
        return FeatureBatch(self.cached.features(indices), self.cached.labels[indices], indices)
