"""From a raw map to a score map in [0, 1] at evaluation size, and from that to levels."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .arrays import Array, numpy_array

Maps = TypeVar("Maps", Tensor, np.ndarray[Any, Any])


def prepare_maps(
    maps: Maps,
    size: tuple[int, int] | int = 224,
    low: float | None = 0.0,
    high: float = 100.0,
) -> Maps:
    """(..., h, w) -> (..., H, W) in [0, 1]: cubic to `size` (height, width), *then* min-max per
    map.

    `low` and `high` are the percentiles of a map that become 0 and 1, and what is beyond them is
    cut off; low=None makes the value 0 become 0. A map that is constant or has a NaN or infinite
    value becomes zeros. The cubic kernel is OpenCV's INTER_CUBIC (a = -0.75, half-pixel centres,
    border repeated, no smoothing when shrinking), equal up to the rounding of float32.
    """
    height, width = _height_width(size)
    values = torch.as_tensor(maps)
    if values.element_size() < 4 or not values.is_floating_point():
        values = values.float()
    flat = values.reshape(-1, 1, *values.shape[-2:])  # (n, 1, h, w)
    # Asked of the raw map: interpolation rounds, and min-max would stretch the rounding of a
    # constant to [0, 1].
    span = flat.amax((-2, -1), keepdim=True) - flat.amin((-2, -1), keepdim=True)
    usable = torch.isfinite(span) & (span > 0)
    if flat.shape[-2:] != (height, width):
        rows, columns = _cubic(flat.shape[-2], height, flat), _cubic(flat.shape[-1], width, flat)
        # Two small products: a fifteenth of the time of torch's own interpolation.
        flat = rows @ flat @ columns.T
    bottom = torch.zeros_like(span) if low is None else _percentile(flat, low)
    usable &= flat.amax((-2, -1), keepdim=True) > bottom
    # Shift, then divide by the highest that is left, as published: the top is exactly 1, whatever
    # was rounded.
    shifted = torch.where(usable, flat - bottom, 0.0).clamp_min(0)
    top = _percentile(shifted, high)
    # Where most of a map is not above the bottom, the whole rest is the top.
    top = torch.where(top > 0, top, torch.finfo(flat.dtype).tiny)
    scaled = (shifted / top).clamp_max(1)
    result = scaled.reshape(*values.shape[:-2], height, width)
    return result.numpy() if isinstance(maps, np.ndarray) else result


def _percentile(maps: Tensor, percentile: float) -> Tensor:
    """(n, 1, H, W) -> (n, 1, 1, 1), the value of a pixel."""
    if percentile == 0:
        return maps.amin((-2, -1), keepdim=True)
    if percentile == 100:
        return maps.amax((-2, -1), keepdim=True)
    pixels = maps.flatten(2)
    rank = 1 + round(percentile / 100 * (pixels.shape[-1] - 1))
    return pixels.kthvalue(rank, keepdim=True).values[..., None]


def _height_width(size: tuple[int, int] | int) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _cubic(old: int, new: int, like: Tensor) -> Tensor:
    """(new, old): the weights with which torch makes `new` values of `old` ones."""
    units = torch.eye(old, dtype=like.dtype, device=like.device)[None, None]
    return F.interpolate(units, (new, old), mode="bicubic", align_corners=False)[0, 0]


def check_score_map(score_map: Any, name: str) -> Array:
    """(H, W) floats in [0, 1], or one sentence that names the image."""
    array = numpy_array(score_map)
    low, high = array.min(), array.max()
    if not (array.ndim == 2 and low >= 0 and high <= 1):  # NaN is refused, too
        raise ValueError(
            f"{name}: a score map is (H, W) with values from 0 to 1, got shape {array.shape} and "
            f"{low:g} to {high:g}; `prepare_maps` scales to [0, 1]"
        )
    return array


def quantise(score_map: Array) -> Array:
    """Scores in [0, 1] -> uint8 by truncation."""
    return (score_map * 255).astype(np.uint8)


def resize_mask(mask: Any, size: tuple[int, int] | int = 224) -> Array:
    """(h, w) -> (H, W) as OpenCV's INTER_NEAREST: row floor(y h / H), no half pixels."""
    array = numpy_array(mask)
    rows, columns = map(_nearest, array.shape, _height_width(size))
    return array[rows[:, None], columns]


def _nearest(old: int, new: int) -> Array:
    """Return the position (new,) among `old` that each of `new` takes.

    With OpenCV's rounding: the product with the reciprocal is less than a whole number at some
    positions, where y h / H is whole.
    """
    step = 1 / (new / old)
    return np.minimum(np.floor(np.arange(new) * step).astype(np.int64), old - 1)


def bin_edges(bin_width: float) -> Array:
    """Return the edges of the histograms of PxAP: 0, w, 2w, ... below 1, then 1, 2, 3."""
    return np.append(np.arange(0, 1, bin_width), [1.0, 2.0, 3.0])
