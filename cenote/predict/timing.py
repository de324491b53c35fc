"""Measure time and memory of functions side by side."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch.profiler import ProfilerActivity, profile

Call = Callable[[], object]


def best_times(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Return the best time of each call in seconds."""
    return {name: min(times) for name, times in round_times(calls, rounds).items()}


def round_times(calls: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    """Return the times of each call in seconds; every round runs all calls in turn."""
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds + 1):
        order = list(calls.items())
        start_at = i % len(order)  # another call is first in every round
        for name, call in order[start_at:] + order[:start_at]:
            start = time.perf_counter()
            call()
            if i > 0:  # the first round warms up
                times[name].append(time.perf_counter() - start)
    return times


@contextmanager
def busy_neighbours(count: int) -> Iterator[None]:
    """Run `count` other processes that multiply matrices meanwhile, each on one thread."""
    code = (
        "import os, torch; torch.set_num_threads(1); x, parent = torch.eye(256), os.getppid()\n"
        "while os.getppid() == parent: x @ x"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def peak_memory(call: Call) -> int:
    """Return the peak of torch's CPU memory during the call, in bytes above that before it."""
    with (
        _silent_stderr(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded,
    ):
        call()
    assert recorded.profiler is not None and recorded.profiler.kineto_results is not None
    events = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    allocated = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        allocated += event.nbytes()
        peak = max(peak, allocated)
    return peak


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Hide what the profiler's C++ code writes to stderr at every start and stop."""
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)
