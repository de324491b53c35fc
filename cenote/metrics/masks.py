"""From an attention map to a mask, and from a mask to a box."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

Box = tuple[int, int, int, int]  # x0, y0, x1, y1 in cells of the mask; the maxima are exclusive


def mass_mask(maps: Tensor | np.ndarray[Any, Any], share: float = 0.6) -> Tensor:
    """(..., H, W) non-negative -> bool: the fewest positions whose mass reaches `share` of the
    map's.

    Of equal positions the first in reading order are taken. A map without mass gives an empty mask.
    """
    maps = torch.as_tensor(maps)
    if not 0 < share <= 1:
        raise ValueError(f"share is more than 0 and at most 1, got {share}")
    if maps.ndim < 2:
        raise ValueError(f"maps are (..., H, W), got shape {tuple(maps.shape)}")
    if not torch.isfinite(maps).all() or (maps < 0).any():
        raise ValueError("a map with negative, NaN or infinite values has no mass to share out")
    flat = maps.flatten(-2).double()  # (..., H, W) -> (..., N)
    values, order = flat.sort(dim=-1, descending=True, stable=True)
    mass = values.cumsum(-1)
    # A position is needed while those before it fall short. The slack is for sums that should be
    # equal: six tenths of ten equal positions are six of them, whatever 0.1 + 0.1 + ... came to.
    needed = mass - values < share * mass[..., -1:] * (1 - 1e-12)
    needed &= values > 0
    return torch.zeros_like(needed).scatter(-1, order, needed).unflatten(-1, maps.shape[-2:])


def largest_box(mask: Tensor | np.ndarray[Any, Any]) -> Box | None:
    """The box around the largest 4-connected component of a (H, W) mask; None if the mask is empty.

    Of equally large components the first in reading order counts.
    """
    from scipy import ndimage

    mask = np.asarray(mask.cpu() if isinstance(mask, Tensor) else mask).astype(bool)
    if mask.ndim != 2:
        raise ValueError(f"a mask is (H, W), got shape {mask.shape}")
    labels, count = ndimage.label(mask)
    if not count:
        return None
    largest = int(np.bincount(labels.ravel())[1:].argmax())
    rows, columns = ndimage.find_objects(labels)[largest]
    return int(columns.start), int(rows.start), int(columns.stop), int(rows.stop)
