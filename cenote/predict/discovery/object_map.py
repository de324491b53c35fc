"""The largest object of an object map (predict/object_map.py)."""

from __future__ import annotations

import numpy as np

from ...metrics import prepare_maps
from ...metrics.contours import EIGHT
from ..object_map import THRESHOLD
from .base import PatchFeatures, PatchObject, patch_object, register

FINER = 4  # times as fine as the patches


@register("object", "Object map", uses="object map")
def _discover(patches: PatchFeatures) -> list[PatchObject]:
    from scipy import ndimage

    assert patches.object_map is not None
    rows, columns = patches.object_map.shape
    fine = prepare_maps(patches.object_map.numpy(), (FINER * rows, FINER * columns))
    labels, count = ndimage.label(fine > THRESHOLD, EIGHT)
    if not count:
        return [patch_object(np.zeros_like(labels, bool))]
    return [patch_object(labels == np.bincount(labels.ravel())[1:].argmax() + 1)]
