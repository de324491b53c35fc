"""Object discovery without labels: one file per method, registered under its name."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from ...data import Dataset
from ...data.loading import UnreadableImage
from ...metrics.arrays import Array
from ...models import PooledModel
from ..boxes import predict_boxes
from ..maps import MapPredictor
from ..object_map import THRESHOLD
from ..progress_file import ProgressFile, run_digest
from .base import METHODS, PatchFeatures, PatchObject
from .patch_features import PatchFeatureExtractor

__all__ = ["DEFAULT_METHOD", "METHODS", "DiscoveredObjects", "DiscoveryResult", "discover_objects"]

DEFAULT_METHOD = "object"
BATCH = 8  # images whose object maps are predicted together

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")  # registers its methods


class DiscoveredObjects(NamedTuple):
    """Objects that one method found in one image."""

    boxes: Array  # (k, 4) in pixels of the image
    masks: list[Array]  # k of (H, W), in cells of the whole image


class DiscoveryResult(NamedTuple):
    position: int  # in the data set
    size: tuple[int, int]  # (w, h)
    objects: dict[str, DiscoveredObjects]  # by method


Discovery = Iterator[DiscoveryResult | UnreadableImage]


def discover_objects(
    model: nn.Module,
    dataset: Dataset,
    methods: Sequence[str] = (DEFAULT_METHOD,),
    workers: int = 0,
    progress_file: Path | None = None,
    refined: bool = False,
    folder: Path | None = None,
    **options: Any,
) -> tuple[PatchFeatureExtractor, MapPredictor | None, Discovery]:
    """Return what extracts patch features and object maps, and an iterator over the images, in order.

    An image that cannot be read, or whose features are not finite, yields a `UnreadableImage`.
    `refined`: object maps follow the edges of the photographs. `folder` is that of a saved model,
    whose stored object map is for few photographs. `options` are those of `PatchFeatureExtractor`.
    With a progress file, which the caller removes, a killed run resumes.
    """
    unknown = [method for method in methods if method not in METHODS]
    if unknown or not methods:
        raise ValueError(f"no discovery method '{', '.join(unknown)}': {', '.join(METHODS)}")
    used = {METHODS[method].uses for method in methods}
    extractor = PatchFeatureExtractor(model, "keys" in used, "attention" in used, **options)
    predictor = None
    if "object map" in used:
        network = extractor.model
        if not isinstance(network, PooledModel):
            raise ValueError("an object map needs a PooledModel, not a bare backbone")
        size = options.get("size")
        predictor = MapPredictor.create(network, "object", size, BATCH, workers, classify=False)
        predictor.fit(dataset, folder)

    def discover(images: Dataset) -> Discovery:
        parts = list[Discovery]()
        if used != {"object map"}:
            parts.append(_objects_of_patches(extractor, images, methods, workers))
        if predictor is not None:
            parts.append(_objects_of_maps(predictor, images, refined))
        for results in zip(*parts, strict=True):
            objects: dict[str, DiscoveredObjects] = {}
            for result in results:
                if isinstance(result, UnreadableImage):
                    yield result
                    break
                objects |= result.objects
            else:
                yield result._replace(objects={method: objects[method] for method in methods})

    if progress_file is None:
        return extractor, predictor, discover(dataset)
    options |= {"refined": refined, "preprocessing": extractor.preprocessing.identity()}
    digest = run_digest(model, dataset, methods=list(methods), **options)
    file = ProgressFile(progress_file, digest, from_json)
    return extractor, predictor, file.resume(dataset, discover)


def _objects_of_maps(predictor: MapPredictor, images: Dataset, refined: bool) -> Discovery:
    for prediction in predict_boxes(predictor, images, THRESHOLD, refined=refined):
        if isinstance(prediction, UnreadableImage):
            yield prediction
        else:
            masks = [prediction.objects == k + 1 for k in range(len(prediction.boxes))]
            objects = DiscoveredObjects(prediction.boxes.astype(np.float64), masks)
            yield DiscoveryResult(prediction.position, prediction.size, {DEFAULT_METHOD: objects})


def _objects_of_patches(
    extractor: PatchFeatureExtractor, images: Dataset, methods: Sequence[str], workers: int
) -> Discovery:
    find = {method: METHODS[method].find for method in methods}
    for patches in extractor(images, workers):
        if isinstance(patches, UnreadableImage):
            yield patches
            continue
        try:
            objects = {m: _in_pixels(f(patches), patches) for m, f in find.items() if f is not None}
        except ValueError as error:
            path = images.path(patches.position)
            yield UnreadableImage(patches.position, f"{path}: {error}")
        else:
            yield DiscoveryResult(patches.position, patches.size, objects)


def _in_pixels(objects: Sequence[PatchObject], patches: PatchFeatures) -> DiscoveredObjects:
    """Scale boxes in cells of their masks to pixels, and cut off what is in the padding."""
    boxes, masks = list[Array](), list[Array]()
    width, height = patches.extent
    shares = np.divide(patches.size, patches.extent)  # of the grid that is image, not padding
    for item in objects:
        if item.box is not None:
            rows, columns = item.mask.shape
            box = np.array(item.box) * ([width / columns, height / rows] * 2)
            boxes.append(np.minimum(box, [*patches.size, *patches.size]))
            x = ((np.arange(columns) + 0.5) * shares[0]).astype(int)
            y = ((np.arange(rows) + 0.5) * shares[1]).astype(int)
            masks.append(item.mask[y[:, None], x])
    return DiscoveredObjects(np.array(boxes, np.float64).reshape(-1, 4), masks)


def from_json(entry: list[Any]) -> DiscoveryResult:
    """Return the result of a line of the progress file."""
    position, (width, height), objects = entry
    found = {method: DiscoveredObjects(*pair) for method, pair in objects.items()}
    return DiscoveryResult(position, (width, height), found)
