"""What every metric asks of its arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np
from torch import Tensor

Array = np.ndarray[Any, Any]
CHUNK = 64  # images in memory at a time


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
