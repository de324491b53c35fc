"""Compiled loops over the images of a batch, on all threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from ...compiled import available

WORTH_IT = 2 << 20  # bytes of features below which plain operations have less overhead
PARTS = 4  # of the work, per thread: a thread that has to wait for a core leaves them to the others


def loops_serve(x: Tensor) -> bool:
    """Loops pay on a CPU for large inputs; tracers and torch.func need plain operations."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state():
        return False
    if torch._C._are_functorch_transforms_active():
        return False
    return x.nbytes > WORTH_IT and compilable(x)


def compilable(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and available()


def in_threads(loop: Callable[..., None], count: int, *arguments: Tensor | float) -> None:
    """Run loop(*arguments, first, last) over the parts of range(count), tensors as arrays.

    One parallel region for the whole loop: the threads of torch's operations wait for each other
    after each of them, which takes long if another process uses their cores.
    """
    arrays = [a.detach().contiguous().numpy() if isinstance(a, Tensor) else a for a in arguments]
    threads = max(1, min(torch.get_num_threads(), count))
    size = -(-count // (threads * PARTS))
    with ThreadPoolExecutor(threads) as pool:
        firsts = range(0, count, max(1, size))
        list(pool.map(lambda i: loop(*arrays, i, min(i + size, count)), firsts))
