"""Evaluate image-text models: zero-shot classes and domains, recall of images and texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data import Dataset
from ..data.image_texts import ImageTexts, as_phrase
from ..models.image_text.small_clip import SmallClip
from ..predict.distributed import device_of
from ..predict.embedding import EmbeddingSource, Loading, embed_source
from ..predict.feature_cache import FeatureBatch
from ..unit import unit
from .validators import UnreadableCallback

RECALLS = (1, 5)
MAX_IMAGES = 5000  # of a split for recall, as on COCO: all are compared with all


class ImageTextValidator:
    """Return the scores of a model in percent; `on_unreadable` receives messages about images."""

    def __init__(
        self,
        source: EmbeddingSource,
        texts: ImageTexts,
        batch: int = 64,
        workers: int = 0,
        name: str = "val",
        on_unreadable: UnreadableCallback = lambda bad, images, name: None,
    ) -> None:
        self.source, self.texts, self.loading = source, texts, Loading(batch, workers)
        self.name, self.on_unreadable = name, on_unreadable
        self.dataset = source if isinstance(source, Dataset) else source.dataset
        self.images: int | None = None  # readable images of the last pass

    @torch.no_grad()
    def __call__(self, model: SmallClip) -> dict[str, float]:
        model.eval()
        device = device_of(model)

        def embed(batch: Any) -> Tensor:
            if isinstance(batch, FeatureBatch):
                return unit(model.image.embed_features(batch.features.to(device)))
            return model.embed_images(batch.images.to(device))

        output = embed_source(self.source, embed, model.transform(), self.loading)
        self.on_unreadable(output.bad, len(self.dataset), self.name)
        positions, vectors = output.positions.tolist(), output.vectors.to(device)
        self.images = len(positions)
        labels, domains = self.dataset.labels[positions], self.dataset.domains
        scores = zero_shot(model, vectors, labels, self.dataset.classes, "class")
        scores |= zero_shot(model, vectors, domains.codes[positions], list(domains.names), "domain")
        return scores | self._recalls(model, vectors, positions)

    def _recalls(self, model: SmallClip, vectors: Tensor, positions: list[int]) -> dict[str, float]:
        """Search images by texts and texts by images; each image contributes its first text."""
        positions, vectors = positions[:MAX_IMAGES], vectors[:MAX_IMAGES]
        texts = list(dict.fromkeys(self.texts.groups[i][0][0] for i in positions))
        truth = self.texts.truth(positions, texts).to(vectors.device)
        similarity = vectors @ model.embed_texts([self.texts.all[i] for i in texts]).T
        recalls: dict[str, float] = {}
        for name, scores, matches in (
            ("text", similarity, truth),
            ("image", similarity.T, truth.T),
        ):
            order = scores.topk(min(max(RECALLS), scores.shape[1]), dim=1).indices
            hits = matches.gather(1, order)
            for k in RECALLS:
                recalls[f"{name}_recall@{k}"] = 100 * float(hits[:, :k].any(1).float().mean())
        return recalls


def zero_shot(
    model: SmallClip, vectors: Tensor, codes: np.ndarray, names: list[str], kind: str
) -> dict[str, float]:
    """Return the share of images nearest to their own name; {} if fewer than two names occur."""
    present = np.unique(codes[codes >= 0])
    if len(present) < 2:
        return {}
    truth = torch.from_numpy(np.searchsorted(present, codes[codes >= 0]))
    labelled = torch.from_numpy(np.flatnonzero(codes >= 0)).to(vectors.device)
    texts = model.embed_texts([as_phrase(names[int(code)]) for code in present])
    predicted = (vectors[labelled] @ texts.T).argmax(1).cpu()
    return {f"zero_shot_{kind}": 100 * float((predicted == truth).float().mean())}


def selection_score(scores: dict[str, float]) -> float:
    """Return what chooses the epoch: the mean zero-shot accuracy, or recall@1 without one."""
    values = [value for name, value in scores.items() if name.startswith("zero_shot")]
    values = values or [value for name, value in scores.items() if name.endswith("recall@1")]
    return float(np.mean(values))
