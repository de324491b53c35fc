"""Embeddings as metrics take them: of torch or NumPy, any float type."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..unit import unit as wide_unit

BLOCK = 8192  # rows that are prepared at a time where nothing else says how many


def as_vectors(values: Any, name: str = "embeddings") -> Tensor:
    """(N, D) where the caller has it; a row with NaN or infinity is refused."""
    vectors = torch.as_tensor(values).detach()
    if vectors.ndim != 2:
        raise ValueError(f"{name} are (vectors, dimensions), got {tuple(vectors.shape)}")
    for start in range(0, len(vectors), BLOCK):
        broken = ~torch.isfinite(vectors[start : start + BLOCK]).all(1)
        if broken.any():
            place = start + int(broken.int().argmax())
            raise ValueError(
                f"{name} hold NaN or infinity, first in row {place}: leave such vectors out"
            )
    return vectors


def as_labels(values: Any, vectors: Tensor, name: str = "labels") -> Tensor:
    """(N,) whole numbers beside the vectors."""
    labels = torch.as_tensor(values).detach().to(vectors.device)
    if labels.shape != vectors.shape[:1] or labels.is_floating_point():
        raise ValueError(
            f"{name} are one whole number for each of {len(vectors)} vectors, got "
            f"{tuple(labels.shape)} of {labels.dtype}"
        )
    return labels.long()


def unit(vectors: Tensor) -> Tensor:
    """float32 of length 1; zero stays zero."""
    return wide_unit(vectors).float()
