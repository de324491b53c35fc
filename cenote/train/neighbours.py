"""Nearest neighbours on the fly: how well vectors that never saw a label tell classes."""

from __future__ import annotations

import torch
from torch import Tensor

from ..data import Dataset
from ..data.loading import load
from ..metrics.neighbours import knn_accuracy
from ..models import PooledModel
from .distributed import gathered, rank, world
from .settings import Settings

MOST = 50_000  # images of the memory: their vectors stay in memory


class Neighbours:
    """k-NN accuracy in percent of the labelled images of `val` among those of `train`."""

    def __init__(self, train: Dataset, val: Dataset, settings: Settings, device: torch.device) -> None:
        memory = train.select(train.labels >= 0)
        self.memory = memory.select(range(0, len(memory), -(-len(memory) // MOST) or 1))
        self.queries = val.select(val.labels >= 0)
        if not len(self.memory) or not len(self.queries):
            raise ValueError(f"nearest neighbours need labelled images in train and val of {train.name}")
        self.settings, self.device = settings, device

    @torch.no_grad()
    def __call__(self, model: PooledModel, k: tuple[int, ...] = (10, 20)) -> dict[str, float]:
        training = model.training
        model.eval()
        (memory, of_memory), (queries, labels) = self._vectors(model, self.memory), self._vectors(model, self.queries)
        model.train(training)
        shares = knn_accuracy(memory, of_memory, queries, labels, k)
        return {f"knn_{count}": 100 * share for count, share in shares.items()}

    def _vectors(self, model: PooledModel, dataset: Dataset) -> tuple[Tensor, Tensor]:
        """Each process embeds its share, and all get everything."""
        share = max(self.settings.batch // world(), 1)
        transform, workers = model.backbone.preprocessing.transform(), self.settings.workers
        vectors, labels = [torch.empty(0)], [torch.empty(0, dtype=torch.long)]
        for batch in load(dataset, transform, share, workers, rank=rank(), world=world()):
            if len(batch.labels):
                vectors.append(model.embed(batch.images.to(self.device)).flatten(1).float().cpu())
                labels.append(batch.labels)
        parts = gathered((torch.cat([v for v in vectors if v.numel()]), torch.cat(labels)))
        return torch.cat([v for v, _ in parts]), torch.cat([y for _, y in parts])
