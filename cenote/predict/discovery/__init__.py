"""Object discovery without labels: one file per method, registered under its name."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ...data import Dataset
from ...data.loading import UnreadableImage
from ...metrics import prepare_maps
from ...metrics.arrays import Array
from ..object_map import THRESHOLD
from ..progress_file import ProgressFile, run_digest
from ..refine import SIDE, refine
from .base import METHODS, PatchFeatures, PatchObject
from .patch_features import PatchFeatureExtractor

__all__ = ["DEFAULT_METHOD", "METHODS", "DiscoveredObjects", "DiscoveryResult", "discover_objects"]

DEFAULT_METHOD = "object"

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")  # registers its methods


class DiscoveredObjects(NamedTuple):
    """Objects that one method found in one image."""

    boxes: Array  # (k, 4) in pixels of the image
    masks: list[Array]  # k of (H, W), in patches


class DiscoveryResult(NamedTuple):
    position: int  # in the data set
    size: tuple[int, int]  # (w, h)
    objects: dict[str, DiscoveredObjects]  # by method


def discover_objects(
    model: nn.Module,
    dataset: Dataset,
    methods: Sequence[str] = (DEFAULT_METHOD,),
    workers: int = 0,
    progress_file: Path | None = None,
    refined: bool = False,
    **options: Any,
) -> tuple[PatchFeatureExtractor, Iterator[DiscoveryResult | UnreadableImage]]:
    """Return the extractor and an iterator over the images, in order.

    An image that cannot be read, or whose features are not finite, yields a `UnreadableImage`.
    `refined`: object maps follow the edges of the photographs. `options` are those of
    `PatchFeatureExtractor`. With a progress file, which the caller removes, a killed run resumes.
    """
    unknown = [method for method in methods if method not in METHODS]
    if unknown or not methods:
        raise ValueError(f"no discovery method '{', '.join(unknown)}': {', '.join(METHODS)}")
    used = {METHODS[method].uses for method in methods}
    extractor = PatchFeatureExtractor(model, "keys" in used, "attention" in used, **options)
    if "object map" in used:
        extractor.fit_object_map(dataset, options.get("size"), workers)

    def discover(images: Dataset) -> Iterator[DiscoveryResult | UnreadableImage]:
        for patches in extractor(images, workers):
            if isinstance(patches, UnreadableImage):
                yield patches
                continue
            if refined and patches.object_map is not None:
                coarse = prepare_maps(patches.object_map.numpy(), SIDE)
                photograph = images.image(patches.position, extractor.preprocessing.min_side(SIDE))
                fine = refine(coarse, photograph, THRESHOLD)
                patches = patches._replace(object_map=torch.from_numpy(fine))
            try:
                objects = {m: _in_pixels(METHODS[m].find(patches), patches) for m in methods}
            except ValueError as error:
                path = images.path(patches.position)
                yield UnreadableImage(patches.position, f"{path}: {error}")
            else:
                yield DiscoveryResult(patches.position, patches.size, objects)

    if progress_file is None:
        return extractor, discover(dataset)
    digest = run_digest(model, dataset, methods=list(methods), refined=refined, **options)
    return extractor, ProgressFile(progress_file, digest, from_json).resume(dataset, discover)


def _in_pixels(objects: Sequence[PatchObject], patches: PatchFeatures) -> DiscoveredObjects:
    """Scale boxes in cells of their masks to pixels: a mask covers the whole image."""
    boxes, masks = list[Array](), list[Array]()
    width, height = patches.size
    for item in objects:
        if item.box is not None:
            rows, columns = item.mask.shape
            boxes.append(np.array(item.box) * ([width / columns, height / rows] * 2))
            masks.append(item.mask)
    return DiscoveredObjects(np.array(boxes, np.float64).reshape(-1, 4), masks)


def from_json(entry: list[Any]) -> DiscoveryResult:
    """Return the result of a line of the progress file."""
    position, (width, height), objects = entry
    found = {method: DiscoveredObjects(*pair) for method, pair in objects.items()}
    return DiscoveryResult(position, (width, height), found)
