"""Time and memory of functions, measured side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch.profiler import ProfilerActivity, profile

Call = Callable[[], object]


def best_times(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Best seconds of each call. Every round runs all of them in turn, so that noise falls on all alike."""
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    best = dict.fromkeys(calls, float("inf"))
    for i in range(rounds + 1):
        turn = list(calls.items())
        for name, call in turn[i % len(turn) :] + turn[: i % len(turn)]:  # nobody always runs first
            start = time.perf_counter()
            call()
            if i > 0:  # the first round warms up
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def peak_memory(call: Call) -> int:
    """Most bytes that torch's CPU allocator held during the call, above what it held before."""
    with (
        _silent_stderr(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded,
    ):
        call()
    assert recorded.profiler is not None and recorded.profiler.kineto_results is not None
    events = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """The profiler's C++ side writes a line of log to stderr at every start and stop."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
