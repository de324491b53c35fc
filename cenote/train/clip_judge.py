"""What an image-text model is worth: classes and domains by their names alone, and recall between images and texts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..data import Dataset
from ..data.image_texts import ImageTexts, as_phrase
from ..models.image_text.small import SmallClip
from ..predict.embedding import Embeddings, embed_batches, image_batches
from ..predict.feature_batches import FeatureBatches
from ..predict.feature_cache import CachedFeatures
from ..unit import unit
from .config import OptimizationConfig

RECALLS = (1, 5)
MOST = 5000  # images of a split that recall is measured on, as on COCO: all are compared with all


class ClipJudge:
    """Call it with a model: scores in percent. `unreadable` is told of images that cannot be read."""

    def __init__(
        self,
        source: Dataset | CachedFeatures,
        texts: ImageTexts,
        settings: OptimizationConfig,
        device: torch.device,
        name: str = "val",
        unreadable: Callable[[list[str], int, str], None] = lambda bad, images, name: None,
    ) -> None:
        self.source, self.texts, self.settings, self.device, self.name = (
            source,
            texts,
            settings,
            device,
            name,
        )
        self.dataset = source if isinstance(source, Dataset) else source.dataset
        self.unreadable = unreadable
        self.images: int | None = None  # of the last pass that could be read

    @torch.no_grad()
    def __call__(self, model: SmallClip) -> dict[str, float]:
        model.eval()
        found = self._vectors(model)
        self.unreadable(found.bad, len(self.dataset), self.name)
        rows, vectors = found.positions.tolist(), found.vectors.to(self.device)
        self.images = len(rows)
        domains = self.dataset.domains
        scores = zero_shot(model, vectors, self.dataset.labels[rows], self.dataset.classes, "class")
        scores |= zero_shot(model, vectors, domains.codes[rows], list(domains.names), "domain")
        return scores | self._recalls(model, vectors, rows)

    def _vectors(self, model: SmallClip) -> Embeddings:
        if not isinstance(self.source, Dataset):
            features = FeatureBatches(self.source, max(self.settings.batch, 256))
            return embed_batches(
                features,
                lambda batch: unit(model.image.embed_features(batch.features.to(self.device))),
                len(self.source),
            )
        batches = image_batches(
            self.source, model.transform(), self.settings.batch, self.settings.workers
        )
        return embed_batches(
            batches,
            lambda batch: model.embed_images(batch.images.to(self.device)),
            len(self.source),
        )

    def _recalls(self, model: SmallClip, vectors: Tensor, rows: list[int]) -> dict[str, float]:
        """Every image has its first text; a hit is any that is true of it."""
        rows, vectors = rows[:MOST], vectors[:MOST]
        asked = list(dict.fromkeys(self.texts.groups[row][0][0] for row in rows))
        truth = self.texts.truth(rows, asked).to(vectors.device)
        similar = vectors @ model.embed_texts([self.texts.all[i] for i in asked]).T
        found: dict[str, float] = {}
        for name, scores, true in (("text", similar, truth), ("image", similar.T, truth.T)):
            order = scores.topk(min(max(RECALLS), scores.shape[1]), dim=1).indices
            hits = true.gather(1, order)
            found |= {
                f"{name}_recall@{k}": 100 * float(hits[:, :k].any(1).float().mean())
                for k in RECALLS
            }
        return found


def zero_shot(
    model: SmallClip, vectors: Tensor, codes: np.ndarray, names: list[str], what: str
) -> dict[str, float]:
    """Images whose own name among those that occur is the nearest text; nothing where there are not two names."""
    present = np.unique(codes[codes >= 0])
    if len(present) < 2:
        return {}
    places = torch.from_numpy(np.searchsorted(present, codes[codes >= 0]))
    known = torch.from_numpy(np.flatnonzero(codes >= 0))
    texts = model.embed_texts([as_phrase(names[int(code)]) for code in present])
    answers = (vectors[known.to(vectors.device)] @ texts.T).argmax(1).cpu()
    return {f"zero_shot_{what}": 100 * float((answers == places).float().mean())}


def score_of(found: dict[str, float]) -> float:
    """What chooses the epoch: the mean of the zero-shot accuracies, or of recall@1 where there are none."""
    shown = [value for name, value in found.items() if name.startswith("zero_shot")]
    shown = shown or [value for name, value in found.items() if name.endswith("recall@1")]
    return float(np.mean(shown))
