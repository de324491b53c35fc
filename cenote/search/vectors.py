"""Image vectors of a data set, computed once for each model and image and then read from disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..data import Dataset
from ..predict.embedding import Embeddings
from ..predict.feature_cache import FeatureCache, FillProgress, Layout

if TYPE_CHECKING:
    from ..models.image_text import ImageText


@torch.no_grad()
def dataset_vectors(
    model: ImageText,
    dataset: Dataset,
    batch: int = 64,
    workers: int = 0,
    device: torch.device | str = "cpu",
    progress: FillProgress | None = None,
) -> Embeddings:
    """Embed the readable images of a data set; an image is identified by its contents."""

    def forward(images: Tensor) -> Tensor:
        return model.embed_images(images.to(device))[:, None]

    cache = FeatureCache()
    settings = {"backbone": model.name, "identity": model.identity, "view": "image-text"}
    store = cache.open(settings, Layout((1, 1), model.dim, False, "float32"))
    rows, bad = cache.fill(store, dataset, model.transform(), forward, batch, workers, progress)
    positions = np.flatnonzero(rows >= 0)
    vectors = np.ascontiguousarray(store.values()[rows[positions], 0])
    return Embeddings(torch.from_numpy(vectors), torch.from_numpy(positions), bad)
