"""The PCA whitening of HOW and SMK, fitted to features of training images before training."""

from __future__ import annotations

import numpy as np
import torch

from ..backbones import Features
from ..data import Dataset
from ..data.loading import Batch
from ..models import PooledModel
from ..models.head import PoolAndHead
from ..pooling.how import HOW
from ..predict.distributed import device_of
from ..predict.embedding import EmbeddingSource, Loading, embed_source
from ..predict.feature_cache import CachedFeatures

IMAGES = 256  # spread over the training images: 12,544 positions of a ResNet's last map


def fit_whitening(body: PoolAndHead, source: EmbeddingSource, workers: int = 0) -> None:
    """Fit the whitening of a pool that has one; `body` is a model, or a head of cached features."""
    if not isinstance(body.pool, HOW):
        return
    chosen = np.linspace(0, len(source) - 1, min(len(source), IMAGES)).astype(np.int64)
    if isinstance(source, CachedFeatures):
        features = source.features(chosen)
    else:
        assert isinstance(body, PooledModel)
        features = _features(body, source.select(chosen), workers)
    body.pool.fit(features.tokens.to(body.pool.weight.device), features.grid)


@torch.no_grad()
def _features(model: PooledModel, dataset: Dataset, workers: int) -> Features:
    grids = []

    def tokens(batch: Batch) -> torch.Tensor:
        features = model.features(batch.images.to(device_of(model)))
        grids.append(features.grid)
        return features.tokens

    training = model.training
    model.eval()
    transform = model.backbone.preprocessing.transform()
    rows = embed_source(dataset, tokens, transform, Loading(workers=workers)).vectors
    model.train(training)
    return Features(rows.unflatten(1, (-1, model.backbone.dim)), grids[0], None)
