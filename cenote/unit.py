"""Vectors of length one."""

from __future__ import annotations

import torch
from torch import Tensor


def unit(z: Tensor) -> Tensor:
    """Rows of length one, float32 or wider; zero stays zero, with a finite gradient.

    Divided by their largest entry first: squares overflow at 1e19 and vanish at 1e-23.
    """
    z = wide(z)
    low, high = z.detach().aminmax(dim=-1, keepdim=True)
    largest = torch.maximum(-low, high)
    z = z / torch.where(largest > 0, largest, 1)
    length: Tensor = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    return z / length.clamp(min=1)  # at least 1 now, or zero


def wide(z: Tensor) -> Tensor:
    return z if z.dtype == torch.float64 else z.float()
