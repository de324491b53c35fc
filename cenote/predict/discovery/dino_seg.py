"""DINO-seg: the largest piece of an attention map's mass (the baseline of LOST, 2021)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...metrics import mass_mask
from ...metrics.arrays import numpy_array
from .objects import Found, found


def dino_seg(
    attention: Any, share: float = 0.6, compat: bool = False, name: str = "the image"
) -> Found:
    """The largest 4-connected piece of what holds `share` of a map (H, W); of equal ones the first in reading order.

    `compat` repeats the published program, whose list of pieces ends one too early: the last piece is never chosen,
    and where there is only one, the background is returned in its place.
    """
    from scipy import ndimage

    a = numpy_array(attention)
    if a.ndim != 2 or not a.size:
        raise ValueError(f"{name}: an attention map is (H, W), got shape {a.shape}")
    try:
        mask = mass_mask(a, share).numpy()
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    labels, count = ndimage.label(mask)
    sizes = np.bincount(labels.ravel(), minlength=count + 1)[1 : count if compat else count + 1]
    if not len(sizes):
        return found(labels == 0) if compat else found(np.zeros_like(mask))
    return found(labels == int(sizes.argmax()) + 1)
