"""Run code with another number of threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def thread_count(count: int) -> Iterator[None]:
    """Set the number of threads of torch, and restore it afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
