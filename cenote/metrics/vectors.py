"""Embeddings as metrics take them: of torch or NumPy, any float type, prepared a block at a
time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..unit import unit as wide_unit

BLOCK = 8192  # rows that are prepared at a time where nothing else says how many


def as_vectors(values: Any, name: str = "embeddings") -> Tensor:
    """(N, D) where the caller has it; a row with NaN or infinity is refused."""
    vectors = _tensor(values, f"{name} are (vectors, dimensions) of real numbers").detach()
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise ValueError(f"{name} are (vectors, dimensions), got {tuple(vectors.shape)}")
    if vectors.is_complex() or vectors.dtype == torch.bool:
        raise ValueError(f"{name} are real numbers, got {vectors.dtype}")
    if vectors.is_floating_point():
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
    labels = _tensor(values, f"{name} are whole numbers").detach().to(vectors.device)
    if labels.shape != vectors.shape[:1]:
        raise ValueError(
            f"{name} are one number for each of {len(vectors)} vectors, got {tuple(labels.shape)}"
        )
    if labels.is_floating_point() or labels.is_complex():
        raise ValueError(f"{name} are whole numbers, got {labels.dtype}")
    return labels.long()


def _tensor(values: Any, wanted: str) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:  # texts, rows of different lengths
        raise ValueError(f"{wanted}, got {type(values).__name__}: {error}") from None


def unit(vectors: Tensor) -> Tensor:
    """float32 of length 1; zero stays zero."""
    return wide_unit(vectors).float()
