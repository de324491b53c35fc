"""Pools and heads over cached features, all contenders in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..backbones import Features
from ..data.loading import Order
from ..predict.distributed import rank, summed, world
from ..predict.feature_cache import CachedFeatures
from .config import OptimizationConfig
from .contender import Contender, alive
from .engine import Task, files_of


class FeatureBatch(NamedTuple):
    features: Features
    labels: Tensor
    indices: list[int]


class FeatureBatches:
    """Batches of cached features; the next one is read while the last is used."""

    def __init__(
        self,
        cached: CachedFeatures,
        batch: int,
        shuffle: bool = False,
        seed: int = 0,
        order: Order | None = None,
    ) -> None:
        share = max(min(batch, len(cached)) // world(), 1)
        self.cached = cached
        self.order = order or Order(
            len(cached),
            share,
            shuffle,
            seed,
            drop_last=shuffle and world() > 1,
            rank=rank(),
            world=world(),
        )

    def __len__(self) -> int:
        return len(self.order)

    def seek(self, epoch: int, batch: int = 0) -> None:
        self.order.epoch, self.order.start = epoch, batch

    def __iter__(self) -> Iterator[FeatureBatch]:
        places = iter(self.order)
        self.order.start = 0
        with ThreadPoolExecutor(1) as thread:
            ahead = None
            for indices in places:
                coming = thread.submit(self._read, [index for _, index in indices])
                if ahead is not None:
                    yield ahead.result()
                ahead = coming
            if ahead is not None:
                yield ahead.result()

    def _read(self, indices: list[int]) -> FeatureBatch:
        return FeatureBatch(self.cached.features(indices), self.cached.labels[indices], indices)


class ProbePart(NamedTuple):
    features: Features
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


class Probe(Task):
    """A task: classify cached features. `make` gives each contender's module anew by its name and rate."""

    def __init__(
        self,
        train: CachedFeatures,
        val: CachedFeatures,
        settings: OptimizationConfig,
        contenders: Sequence[tuple[str, Callable[[], nn.Module], float]],
        device: torch.device | None = None,
    ) -> None:
        self.settings, self.device = settings, device or torch.device("cpu")
        self.loader = FeatureBatches(train, settings.batch, shuffle=True, seed=settings.seed)
        self.judge = FeatureBatches(val, max(settings.batch, 256))
        self.contenders = []
        for name, make, lr in contenders:
            torch.manual_seed(settings.seed)  # each begins as it would alone
            self.contenders.append(Contender(name, make().to(self.device), settings, lr))

    def prepare(self, batch: FeatureBatch, parts: int) -> list[ProbePart]:
        (tokens, grid, cls), labels = batch.features, batch.labels.to(self.device)
        tokens, cls = tokens.to(self.device), None if cls is None else cls.to(self.device)
        shares = zip(
            tokens.chunk(parts),
            [None] * parts if cls is None else cls.chunk(parts),
            labels.chunk(parts),
            strict=False,
        )
        return [ProbePart(Features(t, grid, c), y) for t, c, y in shares]

    def loss(self, module: nn.Module, part: ProbePart) -> Tensor:
        return F.cross_entropy(
            module(part.features), part.labels, label_smoothing=self.settings.smoothing
        )

    def validate(self) -> dict[str, dict[str, float]]:
        living = alive(self.contenders)
        right = accuracies([contender.judged for contender in living], self.judge, self)
        return {
            c.name: {"score": float(r), "accuracy": float(r)}
            for c, r in zip(living, right, strict=True)
        }

    def describe(self, batch: FeatureBatch) -> str:
        return files_of(self.loader.cached.dataset, batch.indices)


@torch.inference_mode()
def accuracies(modules: Sequence[nn.Module], batches: FeatureBatches, probe: Probe) -> Tensor:
    """Percent of right answers of each module, all in one pass, over all processes."""
    right, seen = torch.zeros(len(modules), dtype=torch.float64), 0
    for module in modules:
        module.eval()
    for batch in batches:
        for part in probe.prepare(batch, 1):
            seen += len(part)
            for k, module in enumerate(modules):
                right[k] += (module(part.features).argmax(1) == part.labels).sum().cpu()
    total = summed(torch.cat([right, torch.tensor([float(seen)], dtype=torch.float64)]))
    return 100 * total[:-1] / total[-1].clamp_min(1)
