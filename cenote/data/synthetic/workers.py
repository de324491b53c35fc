"""One function of a world for many images, on all cores, with a progress bar."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

from .drawing import World

T = TypeVar("T")
FEW = 200  # images a process must have to do to be worth its start
_work: tuple[Callable[..., Any], World, tuple[Any, ...]]


def over(
    task: Callable[..., T], world: World, *args: Any, jobs: int | None = None, progress: bool = True
) -> Iterator[T]:
    """`task(world, i, *args)` for every image, in order."""
    jobs = min(jobs or _cores(), max(len(world) // FEW, 1))
    bar: dict[str, Any] = {
        "total": len(world),
        "unit": "image",
        "disable": None if progress else True,
        "file": sys.stderr,
    }
    if jobs == 1 or multiprocessing.current_process().daemon:  # a daemon may not have children
        yield from tqdm((task(world, i, *args) for i in range(len(world))), **bar)
        return
    # Where it can, it forks: that needs no `if __name__ == "__main__"` in the caller's script. The children only draw.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # of forking beside threads, which they do not touch
        pool = context.Pool(jobs, _start, (task, world, args))
    with pool:
        yield from tqdm(pool.imap(_one, range(len(world)), chunksize=16), **bar)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(task: Callable[..., Any], world: World, args: tuple[Any, ...]) -> None:
    global _work
    _work = (task, world, args)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it and ends its children


def _one(i: int) -> Any:
    task, world, args = _work
    return task(world, i, *args)
