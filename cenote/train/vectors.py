"""The vectors of a data set, each process making its share of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ..data import Dataset
from ..data.loading import load
from ..models import PooledModel
from ..models.vectors import Embedded, collected
from .distributed import gathered, rank, world
from .settings import Settings


def vectors_of(
    model: PooledModel, dataset: Dataset, settings: Settings, device: torch.device, bad: list[str] | None = None
) -> tuple[Tensor, Tensor]:
    """(N, D) and labels (N,) of the images that could be read, on every process; `bad` gets a sentence for the rest."""
    share = max(settings.batch // world(), 1)
    transform = model.backbone.preprocessing.transform()
    batches = load(dataset, transform, share, settings.workers, rank=rank(), world=world())
    found = of_all(batches, lambda batch: model.embed(batch.images.to(device)), len(dataset))
    if bad is not None:
        bad += found.bad
    return found.vectors, torch.from_numpy(dataset.labels)[found.positions]


def of_all(batches: Iterable[Any], embed: Callable[[Any], Tensor], images: int) -> Embedded:
    """What `embed` makes of the batches of all processes."""
    parts = gathered(collected(batches, embed, -(-images // world())))
    some = [part for part in parts if len(part.positions)] or parts[:1]
    bad = [sentence for part in parts for sentence in part.bad]
    return Embedded(torch.cat([part.vectors for part in some]), torch.cat([part.positions for part in some]), bad)
