"""Embed a data set: the vectors of all its images, computed by one process or by several."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data import Dataset
from ..data.loading import ImageLoader, load
from ..models import PooledModel
from .batches import Progress, predict_batches
from .device import device_of
from .distributed import gathered, rank, world
from .feature_batches import FeatureBatches
from .feature_cache import CachedFeatures

EmbeddingSource = Dataset | CachedFeatures


class Embeddings(NamedTuple):
    """Vectors of the readable images of a data set."""

    vectors: Tensor  # (N, D) float32
    positions: Tensor  # (N,) indices into the data set
    bad: list[str]  # an error message for each unreadable image

    def labels(self, dataset: Dataset) -> Tensor:
        """Return the class indices (N,) of the embedded images."""
        return torch.from_numpy(dataset.labels)[self.positions]


def embed_dataset(
    model: PooledModel,
    dataset: Dataset,
    batch: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
) -> Embeddings:
    """Embed all readable images; under torchrun each process embeds its share and all get all.

    An image with several vectors contributes them concatenated. Raises ValueError if no image
    can be read.
    """
    return _predict_dataset(model, model.embed, dataset, batch, workers, progress)


def predict_logits(
    model: PooledModel,
    dataset: Dataset,
    batch: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
) -> Embeddings:
    """Predict the logits (N, classes) of all readable images, as `embed_dataset` does vectors."""
    return _predict_dataset(model, model, dataset, batch, workers, progress)


@torch.no_grad()
def _predict_dataset(
    model: PooledModel,
    forward: Callable[[Tensor], Tensor],
    dataset: Dataset,
    batch: int,
    workers: int,
    progress: Progress | None,
) -> Embeddings:
    device, training = device_of(model), model.training
    batches = image_batches(dataset, model.backbone.preprocessing.transform(), batch, workers)
    model.eval()
    outputs = embed_batches(
        batches, lambda loaded: forward(loaded.images.to(device)), len(dataset), progress
    )
    model.train(training)
    if not len(outputs.positions):
        reason = outputs.bad[0] if outputs.bad else "it is empty"
        raise ValueError(f"no image of {dataset.name} could be read: {reason}")
    return outputs


def image_batches(
    dataset: Dataset, transform: Callable[..., Any], batch: int, workers: int
) -> ImageLoader:
    """Load this process's share of the images, `batch` at a time over all processes."""
    share = max(batch // world(), min(batch, 1))  # 0 stays 0, which `load` refuses
    return load(dataset, transform, share, workers, rank=rank(), world=world())


def embed_source(
    source: EmbeddingSource,
    embed: Callable[[Any], Tensor],
    transform: Callable[..., Any] | None,
    batch: int,
    workers: int,
) -> Embeddings:
    """Embed a data set or its cached features with a function of a batch."""
    if isinstance(source, CachedFeatures):
        return embed_batches(FeatureBatches(source, max(batch, 256)), embed, len(source))
    assert transform is not None
    return embed_batches(image_batches(source, transform, batch, workers), embed, len(source))


def embed_batches(
    batches: Iterable[Any],
    embed: Callable[[Any], Tensor],
    images: int,
    progress: Progress | None = None,
) -> Embeddings:
    """Apply `embed` to this process's batches and gather the vectors of all processes.

    `images` is the size of the data set, of all processes together.
    """
    shares = gathered(_collect(batches, embed, -(-images // world()), progress))
    filled = [share for share in shares if len(share.positions)] or shares[:1]
    bad = [message for share in shares for message in share.bad]
    vectors, positions = (torch.cat([share[i] for share in filled]) for i in range(2))
    return Embeddings(vectors, positions, bad)


def _collect(
    batches: Iterable[Any], embed: Callable[[Any], Tensor], images: int, progress: Progress | None
) -> Embeddings:
    """Collect the vectors in one preallocated array of at most `images` rows."""
    vectors, positions, bad = torch.empty(0, 0), torch.empty(images, dtype=torch.long), list[str]()
    filled = 0
    for batch, output in predict_batches(batches, embed, bad, progress):
        u = output.flatten(1).float().cpu()
        if not filled:
            vectors = torch.empty(images, u.shape[1])
        rows = slice(filled, filled + len(u))
        vectors[rows], positions[rows] = u, torch.as_tensor(batch.indices)
        filled += len(u)
    return Embeddings(vectors[:filled], positions[:filled], bad)
