"""A similarity and a place in one number, so that a sort leaves nothing open."""

from __future__ import annotations

import torch
from torch import Tensor


def keys(values: Tensor, places: Tensor) -> Tensor:
    """int64 in the order of the values, float32, of equal values the first place largest."""
    bits = (values + 0.0).view(torch.int32)  # -0 becomes 0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # negative floats ascend as their bits descend
    return (ordered.long() << 32) | (0xFFFFFFFF - places)


def values_of(keys: Tensor) -> Tensor:
    ordered = (keys >> 32).int()
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(torch.float32)


def places_of(keys: Tensor) -> Tensor:
    return 0xFFFFFFFF - (keys & 0xFFFFFFFF)


def nothing(rows: int, k: int, device: torch.device) -> Tensor:
    """Behind everything."""
    least = torch.full((1,), -torch.inf, dtype=torch.float32, device=device)
    empty = keys(least, torch.full((1,), 0xFFFFFFFF, device=device))
    return empty.repeat(rows, k)
