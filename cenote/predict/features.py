"""Features of a frozen backbone, computed once and read from disk ever after."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..backbones import Backbone, Features, Preprocessing
from ..data import Dataset
from ..data.cache import FeatureCache, FeatureStore, Layout, cache_folder, digest_of
from ..data.digests import digests
from ..data.loading import load

VIEWS = (
    "plain",
    "flip",
    "whole",
)  # whole: squeezed to a square, uncropped, for maps over all of the picture
Say = Callable[[str], None]
Progress = Callable[[int, int], None]  # images done, of how many


class CachedFeatures:
    """The features of a dataset's readable images; `bad` names the others."""

    def __init__(
        self, dataset: Dataset, store: FeatureStore, rows: npt.NDArray[np.int64], bad: list[str]
    ) -> None:
        self.store, self.bad = store, bad
        self.positions = np.flatnonzero(rows >= 0)  # in the dataset
        self.dataset = dataset.select(self.positions)
        self.rows = rows[self.positions]
        self.labels = torch.from_numpy(self.dataset.labels)
        self.values = store.values()

    def __len__(self) -> int:
        return len(self.rows)

    def features(self, which: Sequence[int] | npt.NDArray[np.int64] | Tensor) -> Features:
        """Of these images, as float32."""
        chosen = self.rows[np.asarray(which)]
        values = torch.from_numpy(self.values[chosen]).float()  # (B, N or N + 1, D)
        layout = self.store.layout
        tokens = values[:, : layout.grid[0] * layout.grid[1]]
        return Features(tokens, layout.grid, values[:, -1] if layout.cls else None)


def cached_features(
    backbone: Backbone,
    dataset: Dataset,
    preprocessing: Preprocessing | None = None,
    cache: FeatureCache | None = None,
    view: str = "plain",
    dtype: str = "float16",
    batch: int = 32,
    workers: int = 0,
    progress: Progress | None = None,
) -> CachedFeatures:
    """Only images that the cache does not know by their contents go through the backbone."""
    if view not in VIEWS:
        raise ValueError(f"no view '{view}': {', '.join(VIEWS)}")
    preprocessing = preprocessing or backbone.preprocessing
    cache = cache or FeatureCache(cache_folder())
    backbone = backbone.eval()
    store = cache.open(
        describe(backbone, preprocessing, view), _layout(backbone, preprocessing, dtype)
    )
    names = digests(dataset, cache.folder / "files.sqlite")
    bad = _fill(backbone, dataset, store, names, preprocessing, view, batch, workers, progress)
    rows = store.find([name or b"" for name in names])
    return CachedFeatures(dataset, store, rows, bad)


def describe(
    backbone: Backbone, preprocessing: Preprocessing, view: str = "plain"
) -> dict[str, Any]:
    """Whatever a change of which changes the features."""
    return {
        "backbone": backbone.name,
        "weights": weights_digest(backbone),
        "structure": digest_of(
            repr(backbone.model).encode()
        ).hex(),  # two networks may share their weights
        "preprocessing": dataclasses.asdict(preprocessing),
        "view": view,
    }


def weights_digest(backbone: Backbone) -> str:
    parts = []
    for name, value in backbone.state_dict().items():
        raw = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        parts.append(digest_of(name.encode(), raw))
    return digest_of(*parts).hex()


@torch.inference_mode()
def _layout(backbone: Backbone, preprocessing: Preprocessing, dtype: str) -> Layout:
    device = next(backbone.parameters()).device
    tokens, grid, cls = backbone(
        torch.zeros(1, 3, preprocessing.size, preprocessing.size, device=device)
    )
    return Layout(grid, tokens.shape[2], cls is not None, dtype)


@torch.inference_mode()
def _fill(
    backbone: Backbone,
    dataset: Dataset,
    store: FeatureStore,
    names: list[bytes | None],
    preprocessing: Preprocessing,
    view: str,
    batch: int,
    workers: int,
    progress: Progress | None,
) -> list[str]:
    unread = [f"{dataset.path(i)}: no such file" for i, name in enumerate(names) if name is None]
    rows = store.find([name or b"" for name in names])
    missing = [i for i, name in enumerate(names) if name is not None and rows[i] < 0]
    device, done = next(backbone.parameters()).device, 0
    transform = preprocessing.whole() if view == "whole" else preprocessing.transform()
    for images, _, indices, bad, _ in load(dataset.select(missing), transform, batch, workers):
        unread += [sentence for _, sentence in bad]
        done += len(indices) + len(bad)
        if len(indices):
            images = images.to(device)
            tokens, _, cls = backbone(images.flip(-1) if view == "flip" else images)
            values = tokens if cls is None else torch.cat([tokens, cls[:, None]], 1)
            store.append(
                [names[missing[i]] or b"" for i in indices.tolist()], values.float().cpu().numpy()
            )
        if progress:
            progress(done, len(missing))
    return unread
