"""Embed a data set: the vectors of all its images, computed by one process or by several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..backbones import Features
from ..data import Dataset
from ..data.loading import ImageLoader, load
from ..models import PooledModel
from .distributed import device_of, gathered, rank, world
from .feature_cache import CachedFeatures, FeatureBatches
from .inference import Inference
from .openvino_engine import run_frozen

Output = TypeVar("Output")
Progress = Callable[[int], object]  # receives the number of images since the last call
EmbeddingSource = Dataset | CachedFeatures


@dataclass(frozen=True)
class Loading:
    """How the images of a data set are read."""

    batch: int = 64
    workers: int = 0  # processes that read images
    progress: Progress | None = None

    def advance(self, images: int) -> None:
        if self.progress:
            self.progress(images)


class Embeddings(NamedTuple):
    """Vectors of the readable images of a data set."""

    vectors: Tensor  # (N, D) float32
    positions: Tensor  # (N,) indices into the data set
    bad: list[str]  # an error message for each unreadable image

    def labels(self, dataset: Dataset) -> Tensor:
        """Return the class indices (N,) of the embedded images."""
        return torch.from_numpy(dataset.labels)[self.positions]


def embed_dataset(model: PooledModel, dataset: Dataset, loading: Loading = Loading()) -> Embeddings:
    """Embed all readable images; under torchrun each process embeds its share and all get all.

    An image with several vectors contributes them concatenated. Raises ValueError if no image
    can be read.
    """
    return predict_dataset(model, model.embed_features, dataset, loading)


def predict_logits(
    model: PooledModel, dataset: Dataset, loading: Loading = Loading()
) -> Embeddings:
    """Predict the logits (N, classes) of all readable images, as `embed_dataset` does vectors."""
    return predict_dataset(model, model.classify, dataset, loading)


@torch.no_grad()
def predict_dataset(
    model: PooledModel, output: Callable[[Features], Tensor], dataset: Dataset, loading: Loading
) -> Embeddings:
    """Compute a function of the features of all readable images, as `embed_dataset` does."""

    def forward(images: Tensor) -> Tensor:
        return output(run_frozen(model.backbone, images))

    run, training = Inference(forward, device_of(model)), model.training
    transform = model.backbone.preprocessing.transform()
    model.eval()
    outputs = embed_source(dataset, lambda batch: run(batch.images), transform, loading)
    model.train(training)
    if not len(outputs.positions):
        reason = outputs.bad[0] if outputs.bad else "it is empty"
        raise ValueError(f"no image could be read: {reason}")
    return outputs


def image_batches(
    dataset: Dataset, transform: Callable[..., Any], batch: int, workers: int
) -> ImageLoader:
    """Load this process's share of the images, `batch` at a time over all processes."""
    share = max(batch // world(), min(batch, 1))  # 0 stays 0, which `load` refuses
    return load(dataset, transform, share, workers, rank=rank(), world=world())


def predict_batches(
    batches: Iterable[Any],
    forward: Callable[[Any], Output],
    bad: list[str],
    progress: Progress | None = None,
) -> Iterator[tuple[Any, Output]]:
    """Yield each batch that has readable images with the result of `forward(batch)`.

    A batch has `indices`, and `bad` if images may be unreadable: their error messages are
    appended to `bad`. The caller disables gradients.
    """
    for batch in batches:
        count, messages = len(batch.indices), [message for _, message in getattr(batch, "bad", ())]
        bad += messages
        if count:
            yield batch, forward(batch)
        if progress:
            progress(count + len(messages))


def embed_source(
    source: EmbeddingSource,
    embed: Callable[[Any], Tensor],
    transform: Callable[..., Any] | None,
    loading: Loading,
) -> Embeddings:
    """Embed a data set, or its cached features, with a function of a batch.

    Each process embeds its share, and all get the vectors of all.
    """
    batches: Iterable[Any]
    if isinstance(source, CachedFeatures):
        batches = FeatureBatches(source, max(loading.batch, 256))
    else:
        assert transform is not None
        batches = image_batches(source, transform, loading.batch, loading.workers)
    # One preallocated array: a list of vectors and their concatenation would need twice the memory.
    rows = -(-len(source) // world())
    vectors, positions, bad = torch.empty(0, 0), torch.empty(rows, dtype=torch.long), list[str]()
    filled = 0
    for batch, output in predict_batches(batches, embed, bad, loading.progress):
        u = output.flatten(1).float().cpu()
        if not filled:
            vectors = torch.empty(rows, u.shape[1])
        place = slice(filled, filled + len(u))
        vectors[place], positions[place] = u, torch.as_tensor(batch.indices)
        filled += len(u)
    shares = gathered(Embeddings(vectors[:filled], positions[:filled], bad))
    nonempty = [share for share in shares if len(share.positions)] or shares[:1]
    return Embeddings(
        torch.cat([share.vectors for share in nonempty]),
        torch.cat([share.positions for share in nonempty]),
        [message for share in shares for message in share.bad],
    )
