"""Pools and heads over cached features, all contenders in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...backbones import Features
from ...predict.distributed import summed
from ...predict.feature_batches import FeatureBatch, FeatureBatches
from ...predict.feature_cache import CachedFeatures
from ..config import OptimizationConfig
from ..engine import Task, files_of
from ..state import TrainState, active_states


class LabelledFeatures(NamedTuple):
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
        self.states = []
        for name, make, lr in contenders:
            torch.manual_seed(settings.seed)  # each begins as it would alone
            self.states.append(TrainState(name, make().to(self.device), settings, lr))

    def prepare(self, batch: FeatureBatch, parts: int) -> list[LabelledFeatures]:
        (tokens, grid, cls), labels = batch.features, batch.labels.to(self.device)
        tokens, cls = tokens.to(self.device), None if cls is None else cls.to(self.device)
        shares = zip(
            tokens.chunk(parts),
            [None] * parts if cls is None else cls.chunk(parts),
            labels.chunk(parts),
            strict=False,
        )
        return [LabelledFeatures(Features(t, grid, c), y) for t, c, y in shares]

    def loss(self, module: nn.Module, part: LabelledFeatures) -> Tensor:
        return F.cross_entropy(
            module(part.features), part.labels, label_smoothing=self.settings.smoothing
        )

    def validate(self) -> dict[str, dict[str, float]]:
        living = active_states(self.states)
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
