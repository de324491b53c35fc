"""The arguments of metrics: arrays, and embeddings of torch or NumPy in any float type."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..unit import unit as wide_unit

Array = np.ndarray[Any, Any]
CHUNK = 64  # images in memory at a time
BLOCK = 8192  # rows that are prepared at a time where nothing else says how many


def numpy_array(values: Any) -> Array:
    """A tensor, an array or nested lists; float16, slow in NumPy, as float32."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        if values.is_floating_point() and values.element_size() < 4:
            values = values.float()
        return np.asarray(values)
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def on_all_cores(
    function: Callable[..., Any], rows: Iterable[tuple[Any, ...]]
) -> Iterator[list[Any]]:
    """function(*row) of each row, in order, a chunk at a time, on all cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    rows = iter(rows)
    with ThreadPoolExecutor(cores) as pool:
        while chunk := list(islice(rows, CHUNK)):
            yield list(pool.map(lambda row: function(*row), chunk))


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
