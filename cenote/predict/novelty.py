"""Photographs unlike the training images: their vector is far from the mean of every class.

Such a photograph gets a class and often a high probability all the same. The cosine to the nearest
class mean of the training vectors separates them better than the probability (docs/python.md).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..backbones import Features
from ..data import Dataset
from ..data.files import write_atomically
from ..models import PooledModel
from ..models.saving import model_digest
from ..unit import unit
from .distributed import device_of, world
from .embedding import Embeddings, EmbeddingSource, Loading, embed_source, predict_dataset
from .feature_cache import FeatureBatch

log = logging.getLogger(__name__)
FILE = "class_means.safetensors"
ALARMS = 0.05  # of images like the training images
MIN_IMAGES = 10  # for a threshold


class ClassMeans(NamedTuple):
    """The mean vector of each class, and the cosine below which an image is unlike all of them."""

    means: Tensor  # (classes, D) float32, of length one
    threshold: float

    def similarity(self, vectors: Tensor) -> Tensor:
        """Return (B,) the cosine of vectors (B, D), or (B, k, D), to the nearest mean."""
        return (unit(vectors.flatten(1).float()) @ self.means.to(vectors.device).T).amax(1)

    def unlike(self, vectors: Tensor) -> list[bool]:
        """Return for each vector whether its image is unlike the training images."""
        return [bool(value < self.threshold) for value in self.similarity(vectors)]


def threshold_of(similarities: Tensor) -> float:
    """Return the value that a further image of the same kind is below with probability ALARMS.

    The k-th smallest of n values is above a further one with probability k / (n + 1).
    """
    rank = max(1, int(ALARMS * (len(similarities) + 1)))
    return float(similarities.kthvalue(rank).values)


def compute_class_means(
    model: PooledModel, train: EmbeddingSource, val: EmbeddingSource, workers: int = 0
) -> ClassMeans:
    """Average the vectors of the training images, and choose the threshold on validation images."""
    outputs = _embed(model, train, workers)
    labels = outputs.labels(train if isinstance(train, Dataset) else train.dataset)
    means = torch.stack([outputs.vectors[labels == label].mean(0) for label in labels.unique()])
    classes = ClassMeans(unit(means), 0.0)
    similarities = classes.similarity(_embed(model, val, workers).vectors)
    if len(similarities) < MIN_IMAGES:
        raise ValueError(f"a threshold needs {MIN_IMAGES} validation images")
    return classes._replace(threshold=threshold_of(similarities))


@torch.no_grad()
def _embed(model: PooledModel, source: EmbeddingSource, workers: int) -> Embeddings:
    device = device_of(model)

    def embed(batch: Any) -> Tensor:
        if isinstance(batch, FeatureBatch):
            return model.embed_features(batch.features.to(device))
        return model.embed(batch.images.to(device))

    transform = model.backbone.preprocessing.transform()
    return embed_source(source, embed, transform, Loading(workers=workers))


def store_class_means(
    model: PooledModel,
    train: EmbeddingSource,
    val: EmbeddingSource,
    folder: Path,
    workers: int = 0,
) -> None:
    """Store the class means beside a saved model of one class per image.

    Not under torchrun, where only the first process has the saved model.
    """
    if model.multi_label or world() > 1:
        return
    try:
        means, threshold = compute_class_means(model.eval(), train, val, workers)
        with write_atomically(folder / FILE) as path:
            tensors = {"means": means, "threshold": torch.tensor(threshold, dtype=torch.float64)}
            save_file(tensors, path, {"model": model_digest(folder)})
    except (ValueError, OSError) as error:
        log.info("unusual photographs will not be noticed: %s", error)


def read_class_means(folder: Path | None) -> ClassMeans | None:
    """Read the class means that are stored beside a model, None if there are none for its weights."""
    if folder is None or not (folder / FILE).is_file():
        return None
    try:
        with safe_open(folder / FILE, "pt") as file:
            if file.metadata()["model"] != model_digest(folder):
                return None
            return ClassMeans(file.get_tensor("means"), float(file.get_tensor("threshold")))
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / FILE} is damaged ({error}): delete it") from error


def predict_with_novelty(
    model: PooledModel,
    dataset: Dataset,
    loading: Loading = Loading(),
    class_means: ClassMeans | None = None,
) -> Embeddings:
    """Predict (N, classes + 1): logits, and 1 for images unlike the training images, else 0."""

    def output(features: Features) -> Tensor:
        vectors, logits = model.embed_features(features), model.classify(features)
        unlike = [False] * len(vectors) if class_means is None else class_means.unlike(vectors)
        return torch.cat([logits, torch.tensor(unlike).to(logits)[:, None]], 1)

    return predict_dataset(model, output, dataset, loading)
