"""What every metric asks of its arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, zip_longest
from typing import Any

import numpy as np
from torch import Tensor

Array = np.ndarray[Any, Any]
_END = object()
CHUNK = 64  # images in memory at a time


def numpy_array(values: Any) -> Array:
    """A tensor of any device, an array or nested lists; half precision, which numpy computes
    slowly, as float32.
    """
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        if values.is_floating_point() and values.element_size() < 4:
            values = values.float()
        return np.asarray(values)
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def side_by_side(**columns: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """As zip, but a column that ends before the others is an error that says which and where."""
    for i, row in enumerate(zip_longest(*columns.values(), fillvalue=_END)):
        ended = [name for name, value in zip(columns, row, strict=True) if value is _END]
        if ended:
            raise ValueError(f"image {i} has no entry in {' and '.join(ended)}: give one per image")
        yield row


def on_all_cores(
    function: Callable[..., Any], rows: Iterable[tuple[Any, ...]]
) -> Iterator[list[Any]]:
    """function(*row) of each row, in order, a chunk at a time: compiled code lets other threads
    run.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    rows = iter(rows)
    with ThreadPoolExecutor(cores) as pool:
        while chunk := list(islice(rows, CHUNK)):
            yield list(pool.map(lambda row: function(*row), chunk))
