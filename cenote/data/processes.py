"""Apply a function to many items in worker processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Literal, TypeVar

from ..options import check_number

T = TypeVar("T")
MAX_CHUNK = 64  # items sent to a process at a time
MAX_READERS = 8  # processes that read images for one accelerator
Workers = int | Literal["auto"]


def available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def count_workers(workers: Workers) -> int:
    """Return the number of processes that read images.

    With "auto" an accelerator gets its share of the cores. On the CPU the model needs all of them,
    and macOS (MPS) starts processes that import everything again: threads of this process read.
    """
    from ..device import default_device

    if workers != "auto":
        check_number("--workers", workers, whole=True, least=0)
        return workers
    if default_device().type in ("cpu", "mps"):
        return 0
    return min(available_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")), MAX_READERS)


def map_in_processes(
    function: Callable[[Any, int], T], shared: Any, items: Sequence[int], workers: int
) -> Iterator[T]:
    """Yield `function(shared, item)` in order; `shared` is sent to each process once.

    With 0 workers, and in a daemon, which cannot have children, this process does the work.
    """
    if workers < 1 or multiprocessing.current_process().daemon:
        yield from (function(shared, item) for item in items)
        return
    # Forking needs no `if __name__ == "__main__"` in the caller's script.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    pool = ProcessPoolExecutor(workers, context, _start_worker, (function, shared))
    chunk = max(1, min(MAX_CHUNK, len(items) // (4 * workers)))
    try:
        with warnings.catch_warnings():
            # Python warns of forking beside threads, which the children do not touch.
            warnings.simplefilter("ignore", DeprecationWarning)
            results = pool.map(_run, items, chunksize=chunk)
        yield from results
    except BrokenProcessPool as error:
        message = "a worker process died, perhaps out of memory: try fewer workers"
        raise OSError(message) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_work: tuple[Callable[[Any, int], Any], Any]  # of a worker process


def _start_worker(function: Callable[[Any, int], Any], shared: Any) -> None:
    global _work
    _work = function, shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it and ends its children


def _run(item: int) -> Any:
    function, shared = _work
    return function(shared, item)
