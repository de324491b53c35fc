"""Predict one map per image with a saved model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..data import Dataset
from ..data.images import full_size
from ..data.loading import InferenceTransform, UnreadableImage
from ..metrics import prepare_maps
from ..metrics.arrays import Array
from ..models import PooledModel
from ..models.class_map import ForwardPass, depends_on_class, resolve_map_kind
from .distributed import device_of
from .embedding import image_batches
from .novelty import ClassMeans
from .object_map import ObjectMapper, ObjectPass, TwoSizes
from .openvino_engine import run_frozen

MIN_PROBABILITY = 0.5  # of a class of an image that may have several


class WithSize:
    """Transform that also returns the (width, height) of the image: boxes are in its pixels."""

    def __init__(self, transform: InferenceTransform) -> None:
        self.transform, self.min_side = transform, transform.min_side

    def __call__(self, image: Image.Image) -> tuple[Any, Tensor]:
        return self.transform(image), torch.tensor(full_size(image))


class ClassMap(NamedTuple):
    """A class of an image that may have several."""

    class_id: int
    probability: float
    map: Array  # (h, w) as the model predicts it


class MapBatch(NamedTuple):
    """Maps of the readable images of a batch, and messages about the others."""

    positions: list[int]  # in the data set
    sizes: list[tuple[int, int]]  # (width, height) of the images
    maps: Tensor  # (B, h, w) as the model predicts them, float32
    predicted_class_maps: Tensor  # the same tensor if maps do not depend on the class
    logits: Tensor | None  # (B, classes) float32; None for a model without a head
    bad: list[UnreadableImage]
    # Of a multi-label model, for each image: the classes beside the most probable one.
    further: list[list[ClassMap]] | None = None
    unlike_training: list[bool] | None = None  # None: unknown

    def finite(self) -> list[bool]:
        """Return for each image whether its map and its logits are finite."""
        finite = torch.isfinite(self.maps).flatten(1).all(1)
        if self.logits is not None:
            finite &= torch.isfinite(self.logits).all(1)
        return [bool(value) for value in finite]


@dataclass(frozen=True)
class MapPredictor:
    """A model, the kind of map it predicts, the image size and the batch size."""

    model: PooledModel
    kind: str
    size: int
    batch: int = 32
    workers: int = 0
    object_mapper: ObjectMapper | None = None  # for maps of kind "object"
    classify: bool = True  # False: object maps without classes
    class_means: ClassMeans | None = None  # to notice images unlike the training images

    @classmethod
    def create(
        cls,
        model: PooledModel,
        kind: str = "auto",
        size: int | None = None,
        batch: int = 32,
        workers: int = 0,
        images: Dataset | None = None,
        classify: bool = True,
    ) -> MapPredictor:
        """Resolve kind "auto" and the default size; raise if the model has no such map.

        An object map is fitted to `images`; without them it judges each image by itself.
        """
        if kind != "object":
            side = model.map_side(kind) if size is None else size
            return cls(model.eval(), resolve_map_kind(model, kind, side), side, batch, workers)
        if classify and model.multi_label and not depends_on_class(model, kind):
            raise ValueError("object maps of several classes need a model with a CAM")
        mapper = ObjectMapper(model.backbone, size)
        if images is not None:
            mapper.fit_or_read(images, workers=workers)
        return cls(model.eval(), kind, mapper.size, batch, workers, mapper, classify)

    def transform(self) -> WithSize:
        """Resize to a square without cropping; also return the original size."""
        preprocessing = self.model.backbone.preprocessing
        if self.object_mapper is not None:
            return WithSize(TwoSizes(preprocessing, self.size))
        return WithSize(preprocessing.whole((self.size, self.size)))

    def fit(self, images: Dataset, folder: Path | None = None) -> None:
        """Fit object maps to images, or read what is stored in `folder`; others need no fit."""
        if self.object_mapper is not None:
            self.object_mapper.fit_or_read(images, folder, self.workers)

    def describe(self) -> str:
        """Say which map it is."""
        if self.object_mapper is not None:
            return self.object_mapper.describe()
        return f"{self.kind} map"

    def doubts(self) -> tuple[str, ...]:
        """Return warnings about an object map."""
        return () if self.object_mapper is None else self.object_mapper.doubts()

    def predict(self, images: Any, paths: Sequence[Path] = ()) -> ForwardPass:
        """Predict a batch of transformed images."""
        device = device_of(self.model)
        if self.object_mapper is not None:
            for_class, for_map = images
            maps = self.object_mapper.maps(for_map.to(device), paths)
            return ObjectPass(self.model, for_class.to(device), maps, self.classify)
        images = images.to(device)
        features = run_frozen(self.model.backbone, images)
        return ForwardPass(self.model, images, self.kind, features)

    def scores(self, raw: Tensor) -> Array:
        """Resize raw maps (B, h, w) to (B, size, size) and scale them to [0, 1]."""
        raw, wsol = raw.float().cpu(), self.model.wsol
        if self.kind == "cam" and wsol is not None:
            return np.asarray(wsol.scores(raw, self.size))
        return np.asarray(prepare_maps(raw, self.size))

    @torch.no_grad()
    def iterate(self, dataset: Dataset, classes: Tensor | None = None) -> Iterator[MapBatch]:
        """Yield the maps of a data set in batches; under torchrun, of this process's share.

        `classes` (n,) are the class indices to predict maps for, by default the predicted ones.
        """
        for loaded in image_batches(dataset, self.transform(), self.batch, self.workers):
            if not len(loaded.indices):
                empty = torch.empty(0, 1, 1)
                yield MapBatch([], [], empty, empty, None, loaded.bad)
                continue
            images, sizes = loaded.images
            positions = loaded.indices.tolist()
            prediction = self.predict(images, [dataset.path(i) for i in positions])
            logits, device = prediction.logits, prediction.images.device
            predicted = torch.zeros(len(loaded.indices), dtype=torch.long, device=device)
            if logits is not None:
                logits, predicted = logits.float().cpu(), logits.argmax(1)
            own = predicted if classes is None else classes[loaded.indices].to(device)
            maps = of_predicted = prediction.maps(own).float().cpu()
            if classes is not None and depends_on_class(self.model, self.kind):
                of_predicted = prediction.maps(predicted).float().cpu()
            further = None
            if classes is None and logits is not None and self.model.multi_label:
                further = self._further_classes(prediction, logits)
            pixels = [(width, height) for width, height in sizes.tolist()]
            unlike = None
            if self.class_means is not None and self.classify:
                vectors = self.model.embed_features(prediction.features)
                unlike = self.class_means.unlike(vectors)
            yield MapBatch(
                positions, pixels, maps, of_predicted, logits, loaded.bad, further, unlike
            )

    def _further_classes(self, prediction: ForwardPass, logits: Tensor) -> list[list[ClassMap]]:
        """Return the classes of at least MIN_PROBABILITY beside the first, most probable first."""
        probabilities, classes = self.model.probabilities(logits).sort(1, descending=True)
        further: list[list[ClassMap]] = [[] for _ in logits]
        for k in range(1, int((probabilities >= MIN_PROBABILITY).sum(1).max())):
            maps = prediction.maps(classes[:, k].to(prediction.images.device)).float().cpu()
            for i in (probabilities[:, k] >= MIN_PROBABILITY).nonzero()[:, 0].tolist():
                class_id, probability = int(classes[i, k]), float(probabilities[i, k])
                further[i].append(ClassMap(class_id, probability, maps[i].numpy()))
        return further
