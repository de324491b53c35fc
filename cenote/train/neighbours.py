"""Nearest neighbours on the fly: how well vectors that never saw a label tell classes."""

from __future__ import annotations

import torch

from ..data import Dataset
from ..metrics.neighbours import knn_accuracy
from ..models import PooledModel
from ..predict.embedding import embed_dataset
from .config import OptimizationConfig

MOST = 50_000  # images of the memory: their vectors stay in memory


class Neighbours:
    """k-NN accuracy in percent of the labelled images of `val` among those of `train`."""

    def __init__(
        self, train: Dataset, val: Dataset, settings: OptimizationConfig, device: torch.device
    ) -> None:
        memory = train.select(train.labels >= 0)
        self.memory = memory.select(range(0, len(memory), -(-len(memory) // MOST) or 1))
        self.queries = val.select(val.labels >= 0)
        if not len(self.memory) or not len(self.queries):
            raise ValueError(
                f"nearest neighbours need labelled images in train and val of {train.name}"
            )
        self.settings, self.device = settings, device

    @torch.no_grad()
    def __call__(self, model: PooledModel, k: tuple[int, ...] = (10, 20)) -> dict[str, float]:
        memory, queries = (
            embed_dataset(model, images, self.settings.batch, self.settings.workers)
            for images in (self.memory, self.queries)
        )
        labels = memory.labels(self.memory), queries.labels(self.queries)
        shares = knn_accuracy(memory.vectors, labels[0], queries.vectors, labels[1], k)
        return {f"knn_{count}": 100 * share for count, share in shares.items()}
