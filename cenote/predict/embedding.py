"""Embed a data set: the vectors of all its images, computed by one process or by several under torchrun."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data import Dataset
from ..data.loading import load
from ..models import PooledModel
from .distributed import gathered, rank, world


class Embeddings(NamedTuple):
    """Vectors of the readable images of a data set."""

    vectors: Tensor  # (N, D) float32
    positions: Tensor  # (N,) indices into the data set
    bad: list[str]  # an error message for each unreadable image


def embed_dataset(
    model: PooledModel,
    dataset: Dataset,
    batch: int,
    workers: int,
    device: torch.device,
    bad: list[str] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return vectors (N, D) and labels (N,) of all readable images, on every process.

    Error messages of unreadable images are appended to `bad`.
    """
    transform = model.backbone.preprocessing.transform()
    batches = load(
        dataset, transform, max(batch // world(), 1), workers, rank=rank(), world=world()
    )
    embeddings = embed_batches(
        batches, lambda loaded: model.embed(loaded.images.to(device)), len(dataset)
    )
    if bad is not None:
        bad += embeddings.bad
    return embeddings.vectors, torch.from_numpy(dataset.labels)[embeddings.positions]


def embed_batches(
    batches: Iterable[Any], embed: Callable[[Any], Tensor], images: int
) -> Embeddings:
    """Apply `embed` to this process's batches and gather the vectors of all processes."""
    shares = gathered(collect_embeddings(batches, embed, -(-images // world())))
    filled = [share for share in shares if len(share.positions)] or shares[:1]
    bad = [message for share in shares for message in share.bad]
    vectors, positions = (torch.cat([share[i] for share in filled]) for i in range(2))
    return Embeddings(vectors, positions, bad)


def collect_embeddings(
    batches: Iterable[Any],
    embed: Callable[[Any], Tensor],
    images: int,
    progress: Callable[[int], object] | None = None,
) -> Embeddings:
    """Apply `embed` to every batch and collect the vectors in one preallocated array of at most `images` rows.

    A batch has `indices`, and `bad` if images may be unreadable. The caller disables gradients.
    """
    vectors, positions, bad = torch.empty(0, 0), torch.empty(images, dtype=torch.long), list[str]()
    done = 0
    for batch in batches:
        count, messages = len(batch.indices), [message for _, message in getattr(batch, "bad", ())]
        bad += messages
        if count:
            u = embed(batch).flatten(1).float().cpu()
            if not done:
                vectors = torch.empty(images, u.shape[1])
            vectors[done : done + count] = u
            positions[done : done + count] = torch.as_tensor(batch.indices)
            done += count
        if progress:
            progress(count + len(messages))
    return Embeddings(vectors[:done], positions[:done], bad)
