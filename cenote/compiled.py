"""Compile plain functions with numba. Import modules that use it inside functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., object])


@cache
def available() -> bool:
    """Return whether pools can use compiled loops instead of PyTorch's operations."""
    try:
        return not _numba().config.DISABLE_JIT
    except ImportError:  # not installed, or not built for this NumPy
        return False


def compiled(function: F, **options: object) -> F:
    """Compile at the first call, cache on disk, release the GIL."""
    try:
        fast: F = _numba().njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # no writable folder for the cache: compile once per process
        fast = _numba().njit(nogil=True, **options)(function)
    return fast


def reordered(function: F) -> F:
    """Compile with vectorized sums, whose order depends on the CPU; x / 0 is as in NumPy."""
    return compiled(function, fastmath={"reassoc", "contract"}, error_model="numpy")


def inlined(function: F) -> F:
    """Inline into compiled functions: a call per pixel would cost more than its work."""
    fast: F = _numba().njit(nogil=True, inline="always")(function)
    return fast


def _numba() -> Any:
    """Import numba lazily: it takes half a second."""
    return import_module("numba")
