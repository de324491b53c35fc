"""LOST: Localizing objects with self-supervised transformers and no labels (Siméoni 2021)."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch.nn import functional as F

from .base import Grid, PatchFeatures, PatchObject, component, patch_array, patch_object, register


@register("lost", "LOST", uses="keys")
def _discover(patches: PatchFeatures) -> list[PatchObject]:
    keys = patches.keys
    assert keys is not None
    # As published for ResNet and VGG, whose features are behind a ReLU and thus all similar.
    if bool((keys >= 0).all()):
        keys = F.layer_norm(keys, keys.shape)  # over all patches and channels
    return [lost(keys, patches.grid)]


def lost(features: Any, grid: Grid, k: int = 100) -> PatchObject:
    """Find the object from the keys (N, D) of the patches: those similar to the least similar one.

    The published program excludes the diagonal of A from the degrees. That lowers all degrees by
    one and changes only the order of features that are zero.
    """
    f = patch_array(features, grid)
    a = f @ f.T  # (N, N), not normalised
    degree = (a > 0).sum(1)
    order = np.argsort(degree, kind="stable")  # an object has fewer patches than the background
    seed, candidates = order[0], order[:k]
    similar = candidates[a[seed, candidates] > 0]
    m = a[similar].sum(0)  # real-valued rows, not counts: (N,)
    return patch_object(component((m > 0).reshape(grid), int(seed)), int(seed))
