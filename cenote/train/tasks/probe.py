"""Train pools and heads on cached features, several in one pass over the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...backbones import Features
from ...models.frozen import PooledHead
from ...predict.distributed import summed
from ...predict.feature_cache import CachedFeatures, FeatureBatch, FeatureBatches
from ..config import OptimizationConfig
from ..engine import Diverged, Task, file_names
from ..state import TrainState, active_states


class LabelledFeatures(NamedTuple):
    features: Features
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


class Probe(Task):
    """Classify cached features.

    `candidates`: name, function that creates the module, and learning rate of each state.
    """

    loader: FeatureBatches

    def __init__(
        self,
        train: CachedFeatures,
        val: CachedFeatures,
        settings: OptimizationConfig,
        candidates: Sequence[tuple[str, Callable[[], nn.Module], float]],
        device: torch.device | None = None,
    ) -> None:
        self.settings, self.device = settings, device or torch.device("cpu")
        self.loader = FeatureBatches(train, settings.batch, shuffle=True, seed=settings.seed)
        self.val_loader = FeatureBatches(val, max(settings.batch, 256))
        self.states = []
        for name, create, lr in candidates:
            torch.manual_seed(settings.seed)  # each starts as it would alone
            self.states.append(TrainState(name, create().to(self.device), settings, lr))

    def prepare(self, batch: FeatureBatch, chunks: int) -> list[LabelledFeatures]:
        features, labels = batch.features.to(self.device), batch.labels.to(self.device)
        tokens = features.tokens.chunk(chunks)
        cls: Sequence[Tensor | None] = [None] * len(tokens)
        if features.cls is not None:
            cls = features.cls.chunk(chunks)
        micro_batches = zip(tokens, cls, labels.chunk(chunks), strict=True)
        return [LabelledFeatures(Features(x, features.grid, c), y) for x, c, y in micro_batches]

    def loss(self, module: nn.Module, inputs: LabelledFeatures) -> Tensor:
        smoothing = self.settings.smoothing
        return F.cross_entropy(module(inputs.features), inputs.labels, label_smoothing=smoothing)

    def validate(self) -> dict[str, dict[str, float]]:
        states = active_states(self.states)
        accuracy = self.accuracies([state.evaluated for state in states], self.val_loader)
        return {
            state.name: {"score": value, "accuracy": value}
            for state, value in zip(states, accuracy, strict=True)
        }

    @torch.inference_mode()
    def accuracies(self, modules: Sequence[nn.Module], batches: FeatureBatches) -> list[float]:
        """Return the top-1 accuracy in percent of each module, over all processes."""
        counts = torch.zeros(len(modules) + 1, dtype=torch.float64)  # correct ones, then images
        for module in modules:
            module.eval()
        for batch in batches:
            for features, labels in self.prepare(batch, 1):
                counts[-1] += len(labels)
                for i, module in enumerate(modules):
                    counts[i] += (module(features).argmax(1) == labels).sum().cpu()
        *correct, images = summed(counts).tolist()
        return [100 * count / max(images, 1.0) for count in correct]

    def best_state(self) -> TrainState:
        """Return the best state on validation; ties keep the smaller learning rate."""
        states = active_states(self.states)
        if not states:
            raise Diverged("; ".join(f"{state.name}: {state.failed}" for state in self.states))
        return max(states, key=lambda state: (state.best_score, -state.lr))

    @staticmethod
    def best_head(state: TrainState) -> PooledHead:
        """Return the module of a state with its best weights, for evaluation."""
        head = state.module
        assert isinstance(head, PooledHead)
        head.load_state_dict(state.best)
        return head.eval()

    def describe(self, batch: FeatureBatch) -> str:
        return file_names(self.loader.cached.dataset, batch.indices)
