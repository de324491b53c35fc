"""Discover the objects of a data set with one or several methods."""

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
from ..progress_file import ProgressFile, run_digest
from .base import METHODS, PatchFeatures, PatchObject
from .patch_features import PatchFeatureExtractor

for _module in pkgutil.iter_modules([str(Path(__file__).parent)]):
    if _module.name not in ("base", "patch_features", "run"):
        import_module(f"{__package__}.{_module.name}")  # registers its methods


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
    methods: Sequence[str] = ("tokencut",),
    workers: int = 0,
    progress_file: Path | None = None,
    **options: Any,
) -> tuple[PatchFeatureExtractor, Iterator[DiscoveryResult | UnreadableImage]]:
    """Return the extractor and an iterator over the images, in order.

    An image that cannot be read, or whose features are not finite, yields a `UnreadableImage`.
    `options` are those of `PatchFeatureExtractor`. With a progress file, which the caller removes,
    a killed run resumes.
    """
    extractor = extractor_for(model, methods, **options)

    def discover(images: Dataset) -> Iterator[DiscoveryResult | UnreadableImage]:
        for patches in extractor(images, workers):
            yield (
                patches
                if isinstance(patches, UnreadableImage)
                else _apply(methods, patches, images)
            )

    if progress_file is None:
        return extractor, discover(dataset)
    digest = run_digest(model, dataset, methods=list(methods), **options)
    file = ProgressFile(progress_file, digest, to_json, from_json)
    return extractor, file.resume(dataset, discover)


def extractor_for(
    model: nn.Module, methods: Sequence[str], **options: Any
) -> PatchFeatureExtractor:
    """Return an extractor of the features that the methods use."""
    unknown = [method for method in methods if method not in METHODS]
    if unknown or not methods:
        raise ValueError(f"no discovery method '{', '.join(unknown)}': {', '.join(METHODS)}")
    used = {METHODS[method].uses for method in methods}
    return PatchFeatureExtractor(model, "keys" in used, "attention" in used, **options)


def _apply(
    methods: Sequence[str], patches: PatchFeatures, dataset: Dataset
) -> DiscoveryResult | UnreadableImage:
    name = str(dataset.path(patches.position))
    try:
        objects = {m: in_pixels(METHODS[m].find(patches, name), patches) for m in methods}
    except ValueError as error:
        return UnreadableImage(patches.position, str(error))
    return DiscoveryResult(patches.position, patches.size, objects)


def in_pixels(objects: Sequence[PatchObject], patches: PatchFeatures) -> DiscoveredObjects:
    """Scale boxes in patches to pixels: the grid covers the whole image."""
    boxed = [(item.box, item.mask) for item in objects if item.box is not None]
    (width, height), (rows, columns) = patches.size, patches.grid
    patch = np.array([width / columns, height / rows] * 2)
    boxes = np.array([box for box, _ in boxed], np.float64).reshape(-1, 4) * patch
    return DiscoveredObjects(boxes, [mask for _, mask in boxed])


def to_json(result: DiscoveryResult) -> list[Any]:
    objects = {
        method: [discovered.boxes.tolist(), [mask_rows(mask) for mask in discovered.masks]]
        for method, discovered in result.objects.items()
    }
    return [result.position, *result.size, objects]


def from_json(entry: list[Any]) -> DiscoveryResult:
    position, width, height, objects = entry
    parsed = {
        method: DiscoveredObjects(
            np.array(boxes, np.float64).reshape(-1, 4), [rows_mask(rows) for rows in masks]
        )
        for method, (boxes, masks) in objects.items()
    }
    return DiscoveryResult(position, (width, height), parsed)


def mask_rows(mask: Array) -> list[str]:
    """Return the rows of a mask as strings of 0 and 1."""
    return ["".join("01"[cell] for cell in row) for row in mask.astype(int)]


def rows_mask(rows: Sequence[str]) -> Array:
    return np.array([[cell == "1" for cell in row] for row in rows], bool)
