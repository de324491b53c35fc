"""Image vectors of a data set, computed once for each model and image, and read from disk ever after."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..data import Dataset
from ..data.cache import FeatureCache, Layout, cache_folder
from ..data.digests import digests
from ..data.loading import load
from ..predict.embedding import Embeddings

if TYPE_CHECKING:
    from ..models.image_text import ImageText


@torch.no_grad()
def dataset_vectors(
    model: ImageText,
    dataset: Dataset,
    batch: int = 64,
    workers: int = 0,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], object] | None = None,
) -> Embeddings:
    """Of the images that could be read; an image is known by its contents, whatever it is called."""
    cache = FeatureCache(cache_folder())
    layout = Layout((1, 1), model.dim, False, "float32")
    store = cache.open(
        {"backbone": model.name, "identity": model.identity, "view": "image-text"}, layout
    )
    names = digests(dataset, cache.folder / "files.sqlite")
    bad = [f"{dataset.path(i)}: no such file" for i, name in enumerate(names) if name is None]
    rows = store.find([name or b"" for name in names])
    missing = [i for i, name in enumerate(names) if name is not None and rows[i] < 0]
    done = 0
    for images, _, indices, unread, _ in load(
        dataset.select(missing), model.transform(), batch, workers
    ):
        bad += [sentence for _, sentence in unread]
        done += len(indices) + len(unread)
        if len(indices):
            vectors = model.embed_images(images.to(device)).float().cpu().numpy()
            store.append([names[missing[i]] or b"" for i in indices.tolist()], vectors[:, None])
        if progress:
            progress(done, len(missing))
    rows = store.find([name or b"" for name in names])
    positions = np.flatnonzero(rows >= 0)
    found = np.ascontiguousarray(store.values()[rows[positions], 0])
    return Embeddings(torch.from_numpy(found), torch.from_numpy(positions), bad)
