"""Train pools and heads on cached features, several in one pass over the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...evaluate.validators import MultiLabelScore
from ...metrics.arrays import Array
from ...models.frozen import PooledHead
from ...models.head import PoolAndHead
from ...predict.distributed import summed
from ...predict.feature_cache import CachedFeatures, FeatureBatches
from ..build import start_from_shares
from ..config import OptimizationConfig
from ..engine import Examples, Metrics, Task, load_batches
from ..state import TrainState, active_states
from ..whitening import fit_whitening
from ..wsol import classification_loss, step_seed
from .supervised import metric_and_loss


class LearningRates(NamedTuple):
    """The learning rate of the head, and the factor of it for the matrices of the pool."""

    lr: float
    pool_lr_factor: float = 1.0

    def __str__(self) -> str:
        return (
            f"{self.lr:g}" if self.pool_lr_factor == 1 else f"{self.lr:g}x{self.pool_lr_factor:g}"
        )


class Probe(Task):
    """Classify cached features.

    `candidates`: name, function that creates the module, and learning rates of each state.
    """

    def __init__(
        self,
        train: CachedFeatures,
        val: CachedFeatures,
        settings: OptimizationConfig,
        candidates: Sequence[tuple[str, Callable[[], nn.Module], LearningRates]],
        device: torch.device,
    ) -> None:
        self.settings, self.device, self.source = settings, device, train
        self.multi_label = train.dataset.multi_label
        self.metric, self.criterion = metric_and_loss(self.multi_label)
        self.loader = load_batches(train, None, settings)
        self.val_loader = FeatureBatches(val, max(settings.batch, 256))
        self.states = []
        for name, create, rates in candidates:
            torch.manual_seed(settings.seed)  # each starts as it would alone
            chosen, module = replace(settings, **rates._asdict()), create()
            assert isinstance(module, PoolAndHead)
            fit_whitening(module, train)
            if self.multi_label:
                start_from_shares(module, train.dataset)
            self.states.append(TrainState(name, module.to(self.device), chosen))

    def begin_step(self, epoch: float) -> None:
        self.seed = step_seed(self.settings, epoch, len(self.loader))

    def loss(self, module: nn.Module, inputs: Examples) -> Tensor:
        criterion = partial(self.criterion, label_smoothing=self.settings.smoothing)
        return classification_loss(module, inputs, criterion, self.seed)

    def validate(self) -> Metrics:
        states = active_states(self.states)
        scores = self.scores([state.evaluated for state in states], self.val_loader)
        return {
            state.name: {"score": value, self.metric: value}
            for state, value in zip(states, scores, strict=True)
        }

    def scores(self, modules: Sequence[nn.Module], batches: FeatureBatches) -> list[float]:
        """Return the accuracy of each module, or the mAP if images have several classes."""
        return [100 * float(values.mean()) for values in self.outcomes(modules, batches)]

    @torch.inference_mode()
    def outcomes(self, modules: Sequence[nn.Module], batches: FeatureBatches) -> list[Array]:
        """Return what a score is the mean of, over all processes: for each module (n,).

        It is 1 for every image that is classified correctly and 0 for the others; if images have
        several classes, the average precision of each class.
        """
        for module in modules:
            module.eval()
        if self.multi_label:
            return self._average_precisions(modules, batches)
        right = torch.zeros(len(modules), len(batches.cached), dtype=torch.float64)
        for batch in batches:
            features, labels = self.examples(batch)
            for i, module in enumerate(modules):
                right[i, batch.indices] = (module(features).argmax(1) == labels).double().cpu()
        return list(summed(right).numpy())

    def _average_precisions(
        self, modules: Sequence[nn.Module], batches: FeatureBatches
    ) -> list[Array]:
        scores = [MultiLabelScore() for _ in modules]
        for batch in batches:
            features, targets = self.examples(batch)
            for module, score in zip(modules, scores, strict=True):
                score.add(module(features), targets)
        return [score.by_class() for score in scores]

    @torch.inference_mode()
    def mean_map(self, module: PooledHead, batches: FeatureBatches) -> Tensor:
        """Return the mean (H, W) of the pool's maps over all images, in all processes."""
        total = torch.zeros(batches.cached.store.layout.grid, dtype=torch.float64)
        for batch in batches:
            maps = module.eval().pool_features(self.examples(batch).inputs)[1]
            assert maps is not None
            total += maps.double().mean(1).sum(0).cpu()
        return summed(total) / len(batches.cached)

    @staticmethod
    def best_head(state: TrainState) -> PooledHead:
        """Return the module of a state with its best weights, for evaluation."""
        head = state.load_best()
        assert isinstance(head, PooledHead)
        return head
