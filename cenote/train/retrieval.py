"""Judging by neighbours: how many images of unseen classes have their like nearest to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data import Dataset
from ..metrics.retrieval import KS, retrieval_scores
from ..models import PooledModel
from ..models.frozen import PooledHead
from ..predict.embedding import embed_batches, image_batches
from ..predict.feature_batches import FeatureBatches
from ..predict.feature_cache import CachedFeatures
from .config import OptimizationConfig

Source = Dataset | CachedFeatures
COUNTS = ("queries", "without_match")  # of what `scores` gives; the others are percentages


class Searched(NamedTuple):
    """Normalised vectors with their classes; a gallery of its own where there is one."""

    vectors: Tensor
    labels: Tensor
    gallery: Tensor | None = None
    gallery_labels: Tensor | None = None


class Retrieval:
    """Images (or their cached features) that are looked for among each other, or in a gallery.

    `unreadable` is told, after each pass over images, which of how many could not be read, and the `name` of the split.
    """

    def __init__(
        self,
        queries: Source,
        gallery: Source | None,
        settings: OptimizationConfig,
        device: torch.device,
        ks: Sequence[int] = KS,
        without_match: str = "exclude",
        name: str = "test",
        unreadable: Callable[[list[str], int, str], None] = lambda bad, images, name: None,
    ) -> None:
        self.queries, self.gallery, self.settings, self.device, self.ks = (
            queries,
            gallery,
            settings,
            device,
            tuple(ks),
        )
        self.without_match, self.name, self.unreadable = without_match, name, unreadable
        self.images: int | None = None  # queries of the last pass that could be read

    def __call__(self, body: PooledModel | PooledHead) -> dict[str, float]:
        return scores(self.searched(body), self.ks, self.without_match)

    @torch.no_grad()
    def searched(self, body: PooledModel | PooledHead) -> Searched:
        body.eval()
        found = Searched(*self._vectors(body, self.queries, self.name))
        self.images = len(found.labels)
        if self.gallery is None:
            return found
        gallery, labels = self._vectors(body, self.gallery, "gallery")
        return found._replace(gallery=gallery, gallery_labels=labels)

    def _vectors(
        self, body: PooledModel | PooledHead, source: Source, name: str
    ) -> tuple[Tensor, Tensor]:
        if isinstance(source, Dataset):
            assert isinstance(body, PooledModel)
            transform = body.backbone.preprocessing.transform()
            images = image_batches(source, transform, self.settings.batch, self.settings.workers)
            embeddings = embed_batches(
                images, lambda loaded: body.embed(loaded.images.to(self.device)), len(source)
            )
            self.unreadable(embeddings.bad, len(source), name)
            vectors, labels = embeddings.vectors, embeddings.labels(source)
        else:
            batches = FeatureBatches(source, max(self.settings.batch, 256))
            found = embed_batches(
                batches, lambda one: body.embed_features(one.features.to(self.device)), len(source)
            )
            vectors, labels = found.vectors, source.labels[found.positions]
        return F.normalize(vectors, dim=1), labels


def scores(found: Searched, ks: Sequence[int], without_match: str = "exclude") -> dict[str, float]:
    """In percent, and how many queries they are means of; those with nothing to find are excluded, or misses."""
    told = retrieval_scores(
        found.vectors,
        found.labels,
        tuple(ks),
        found.gallery,
        found.gallery_labels,
        without_match=without_match,
    )
    return {name: value if name in COUNTS else 100 * float(value) for name, value in told.items()}


def concatenated(several: Sequence[Searched]) -> Searched:
    """The vectors of several models in a row, as one of them all."""
    first = several[0]
    gallery = (
        None
        if first.gallery is None
        else torch.cat([e.gallery for e in several if e.gallery is not None], 1)
    )
    return first._replace(vectors=torch.cat([e.vectors for e in several], 1), gallery=gallery)
