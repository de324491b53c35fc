"""Scores that choose the best epoch or trial while a model trains, over all processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..data import Dataset
from ..data.ground_truth import boxes_of, mask_of, one_class_each, with_boxes
from ..data.image_texts import ImageTexts, as_phrase
from ..data.splits import refuse_several_classes
from ..metrics import BoxAccuracy, PixelPrecision, class_average_precisions, resize_mask
from ..metrics.arrays import Array
from ..metrics.retrieval import KS, retrieval_scores
from ..models import PooledModel
from ..models.frozen import PooledHead
from ..predict.distributed import device_of, gathered, rank
from ..predict.embedding import Embeddings, EmbeddingSource, Loading, embed_source
from ..predict.feature_cache import FeatureBatch
from ..predict.maps import MapBatch, MapPredictor
from ..unit import unit
from .probes import knn

if TYPE_CHECKING:
    from ..models.image_text.small_clip import SmallClip

log = logging.getLogger(__name__)
MAX_MEMORY = 50_000  # images whose vectors are held in memory for k-NN
NEEDED = {"boxes": "boxes of their class", "pixels": "masks"}
RECALLS = (1, 5)  # of images and texts
MAX_COMPARED = 5000  # images of a split for recall, as on COCO: all are compared with all
COUNTS = ("queries", "without_match")  # of retrieval scores; the others are percentages
UnreadableCallback = Callable[[list[str], int, str], None]  # messages, number of images, split


class KnnValidator:
    """k-NN accuracy of the labelled images of `val` among those of `train`."""

    def __init__(self, train: Dataset, val: Dataset, batch: int = 64, workers: int = 0) -> None:
        labelled = train.select(train.labels >= 0)
        self.queries = val.select(val.labels >= 0)
        if not len(labelled) or not len(self.queries):
            raise ValueError(f"k-NN needs labelled images in train and val of {train.name}")
        self.memory = labelled.select(range(0, len(labelled), -(-len(labelled) // MAX_MEMORY)))
        self.loading = Loading(batch, workers)

    def __call__(self, model: PooledModel) -> dict[str, float]:
        """Return {"knn_10": ..., "knn_20": ...} in percent."""
        return knn(model, self.memory, self.queries, self.loading).by_name()


class MultiLabelScore:
    """mAP in percent of images with several classes, over all processes."""

    def __init__(self) -> None:
        self.batches: list[tuple[Tensor, Tensor]] = []  # logits and targets (B, classes)

    def add(self, logits: Tensor, targets: Tensor) -> None:
        self.batches.append((logits.float().cpu(), targets.cpu()))

    def by_class(self) -> Array:
        """Return the average precision of each class that some image has; 0 if none has a class."""
        batches = [batch for share in gathered(self.batches) for batch in share]
        logits, targets = (torch.cat(column) for column in zip(*batches, strict=True))
        values = class_average_precisions(logits, targets)
        return values[~np.isnan(values)] if targets.any() else np.zeros(1)

    def result(self) -> float:
        return 100 * float(self.by_class().mean())


class LocalizationValidator:
    """MaxBoxAccV2 (by="boxes") or PxAP (by="pixels") of the maps for the true class.

    Images are resized to a square, not cropped: a map covers the whole image. Images without box or
    mask are not used, nor are unreadable ones and those with a wrong box or mask, which are logged
    once.
    """

    def __init__(self, dataset: Dataset, by: str, batch: int = 64, workers: int = 0) -> None:
        self.by = by
        self.bad: list[str] = []  # of all processes
        self.dataset = select_with_truth(dataset, by)
        if not len(self.dataset):
            raise ValueError(
                f"select={by} needs {NEEDED[by]}, but the {len(dataset)} validation images of "
                f"{dataset.name} have none: select=accuracy needs none"
            )
        self.batch, self.workers = min(batch, len(self.dataset)), workers
        self.kind = "auto"  # resolved once

    def __call__(self, model: PooledModel) -> float:
        """Return the score in percent."""
        return localization_score(self.evaluate(model))

    def evaluate(self, model: PooledModel) -> BoxAccuracy | PixelPrecision:
        """Return the metric of all images, on every process."""
        if self.kind == "auto":
            self.kind = MapPredictor.create(model).kind
        size = model.backbone.preprocessing.size
        predictor = MapPredictor(model.eval(), self.kind, size, self.batch, self.workers)
        metric = BoxAccuracy() if self.by == "boxes" else PixelPrecision()
        bad: list[str] = []
        classes = torch.from_numpy(self.dataset.labels)
        for batch in predictor.iterate(self.dataset, classes):
            bad += [message for _, message in batch.bad]
            if batch.positions:
                bad += self._add(metric, predictor.scores(batch.maps), batch)
        (total, messages), *shares = gathered((metric, bad))
        for share, share_messages in shares:
            total.merge(share)
            messages += share_messages
        new = [message for message in dict.fromkeys(messages) if message not in self.bad]
        self.bad += new  # every epoch has the same ones
        if rank() == 0:
            for message in new:
                log.info("left out of %s: %s", self.by, message)
        if not total.count:
            reason = next(iter(messages), f"they have no {NEEDED[self.by]}")
            raise ValueError(
                f"select={self.by}: no image of {self.dataset.name} could be evaluated: {reason}"
            )
        return total  # type: ignore[no-any-return]

    def _add(self, metric: BoxAccuracy | PixelPrecision, maps: Array, batch: MapBatch) -> list[str]:
        """Add the images of a batch; return messages about those whose box or mask is wrong."""
        truth_of = boxes_of if isinstance(metric, BoxAccuracy) else mask_of
        valid, truths, bad = list[int](), list[Any](), list[str]()
        for i, position in enumerate(batch.positions):
            try:
                truth = truth_of(self.dataset, position, batch.sizes[i])
            except ValueError as error:  # BadImage is one
                bad.append(str(error))
                continue
            if truth is not None:
                valid.append(i)
                truths.append(truth)
        names = [str(self.dataset.path(batch.positions[i])) for i in valid]
        if isinstance(metric, BoxAccuracy):
            metric.add(maps[valid], truths, [batch.sizes[i] for i in valid], names=names)
            return bad
        for score_map, mask, name in zip(maps[valid], truths, names, strict=True):
            metric.add(score_map, resize_mask(mask, score_map.shape), name)
        return bad


def localization_score(metric: BoxAccuracy | PixelPrecision) -> float:
    """Return the score in percent; for boxes at the thresholds that are best for these images."""
    if isinstance(metric, PixelPrecision):
        return 100 * metric.result()
    return 100 * metric.result().score


def select_with_truth(dataset: Dataset, by: str) -> Dataset:
    """Select the images with boxes, or with masks for by="pixels"."""
    if by == "boxes":
        return with_boxes(one_class_each(dataset))
    if dataset.mask_codes.startswith("classes"):
        raise ValueError(
            f"the masks of {dataset.name} have classes: select=pixels needs masks of objects"
        )
    refuse_several_classes(dataset, "select=pixels")
    return dataset.select(dataset.has_masks)


def localization_on_test(
    model: PooledModel, val: Dataset, test: Dataset, by: str, batch: int = 64, workers: int = 0
) -> dict[str, Any]:
    """Evaluate test images by what chose the model.

    Boxes are evaluated with the thresholds of `val`, and with the best ones for `test` (oracle).
    Returns {} if `by` is "accuracy" or no test image has ground truth.
    """
    if by == "accuracy" or not len(select_with_truth(test, by)):
        return {}
    validator = LocalizationValidator(test, by, batch, workers)
    metric = validator.evaluate(model)
    report: dict[str, Any] = {"map": validator.kind}
    if validator.bad:
        report["left_out"] = validator.bad
    if not isinstance(metric, BoxAccuracy):
        return {"pixels": localization_score(metric), "bin_width": metric.bin_width, **report}
    val_metric = LocalizationValidator(val, by, batch, workers).evaluate(model)
    assert isinstance(val_metric, BoxAccuracy)
    honest = metric.at(val_metric.result().thresholds)
    report |= {"thresholds": honest.thresholds, "interval": metric.interval, "boxed": metric.count}
    return {"boxes": 100 * honest.score, "boxes_oracle": localization_score(metric), **report}


class SearchVectors(NamedTuple):
    """Normalized vectors with their classes, and those of a gallery if there is one."""

    vectors: Tensor
    labels: Tensor
    gallery: Tensor | None = None
    gallery_labels: Tensor | None = None

    def scores(self, ks: Sequence[int], without_match: str = "exclude") -> dict[str, float]:
        """Return retrieval scores in percent, and the number of queries they are means of."""
        scores = retrieval_scores(
            self.vectors,
            self.labels,
            ks,
            self.gallery,
            self.gallery_labels,
            without_match=without_match,
        )
        return scores | {name: 100 * float(v) for name, v in scores.items() if name not in COUNTS}


def concatenate_vectors(models: Sequence[SearchVectors]) -> SearchVectors:
    """Concatenate the vectors of several models."""
    vectors = torch.cat([model.vectors for model in models], 1)
    galleries = [model.gallery for model in models if model.gallery is not None]
    gallery = torch.cat(galleries, 1) if galleries else None
    return models[0]._replace(vectors=vectors, gallery=gallery)


class RetrievalValidator:
    """Search images (or their cached features) among each other, or in a gallery.

    `on_unreadable` receives error messages, the number of images and the name of the split.
    """

    def __init__(
        self,
        queries: EmbeddingSource,
        gallery: EmbeddingSource | None,
        device: torch.device,
        batch: int = 64,
        workers: int = 0,
        ks: Sequence[int] = KS,
        without_match: str = "exclude",
        name: str = "test",
        on_unreadable: UnreadableCallback = lambda bad, images, name: None,
    ) -> None:
        self.queries, self.gallery, self.device = queries, gallery, device
        self.batch, self.workers = batch, workers
        self.ks, self.without_match = tuple(ks), without_match
        self.name, self.on_unreadable = name, on_unreadable
        self.images: int | None = None  # readable queries of the last pass

    def __call__(self, model: PooledModel | PooledHead) -> dict[str, float]:
        return self.vectors(model).scores(self.ks, self.without_match)

    @torch.no_grad()
    def vectors(self, model: PooledModel | PooledHead) -> SearchVectors:
        """Embed queries and gallery."""
        model.eval()
        vectors = SearchVectors(*self._embed(model, self.queries, self.name))
        self.images = len(vectors.labels)
        if self.gallery is None:
            return vectors
        gallery, labels = self._embed(model, self.gallery, "gallery")
        return vectors._replace(gallery=gallery, gallery_labels=labels)

    def _embed(
        self, model: PooledModel | PooledHead, source: EmbeddingSource, name: str
    ) -> tuple[Tensor, Tensor]:
        output = embed_images_or_features(
            model, source, self.device, Loading(self.batch, self.workers)
        )
        if isinstance(source, Dataset):
            self.on_unreadable(output.bad, len(source), name)
        return F.normalize(output.vectors, dim=1), output.labels(_dataset_of(source))


def embed_images_or_features(
    model: PooledModel | PooledHead, source: EmbeddingSource, device: torch.device, loading: Loading
) -> Embeddings:
    """Embed images, or their cached features, with a model in evaluation mode."""
    transform = None
    if isinstance(model, PooledModel):
        transform = model.backbone.preprocessing.transform()

    def embed(batch: Any) -> Tensor:
        if isinstance(batch, FeatureBatch):
            return model.embed_features(batch.features.to(device))
        assert isinstance(model, PooledModel)
        return model.embed(batch.images.to(device))

    return embed_source(source, embed, transform, loading)


def _dataset_of(source: EmbeddingSource) -> Dataset:
    return source if isinstance(source, Dataset) else source.dataset


class ImageTextValidator:
    """Zero-shot classes and domains, and recall of images and texts, in percent."""

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
        self.dataset = _dataset_of(source)
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
        positions, vectors = positions[:MAX_COMPARED], vectors[:MAX_COMPARED]
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
