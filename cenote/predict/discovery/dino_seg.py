"""DINO-seg: the largest component of an attention map's mass (the baseline of LOST, 2021)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...metrics import mass_mask
from ...metrics.arrays import numpy_array
from .base import PatchFeatures, PatchObject, patch_object, register


@register("dinoseg", "DINO-seg", uses="attention")
def _discover(patches: PatchFeatures) -> list[PatchObject]:
    return [dino_seg(patches.attention)]


@register("dinoseg-compat", "DINO-seg (compat)", uses="attention")
def _discover_compat(patches: PatchFeatures) -> list[PatchObject]:
    return [dino_seg(patches.attention, compat=True)]


def dino_seg(attention: Any, share: float = 0.6, compat: bool = False) -> PatchObject:
    """Return the largest 4-connected component of the patches with `share` of a map (H, W).

    Ties keep the first component in reading order. `compat` reproduces the published program, whose
    list of components ends one too early: the last one is never chosen, and if there is only one,
    the background is returned instead.
    """
    from scipy import ndimage

    mask = mass_mask(numpy_array(attention), share).numpy()
    labels, count = ndimage.label(mask)
    areas = np.bincount(labels.ravel(), minlength=count + 1)[1:]
    if compat:
        areas = areas[: count - 1]
    if len(areas):
        return patch_object(labels == int(areas.argmax()) + 1)
    return patch_object(labels == 0 if compat else np.zeros_like(mask))
