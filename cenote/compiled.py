"""Plain functions made fast by numba. Import what uses it inside a function."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., object])


@cache
def available() -> bool:
    """Whether functions can be compiled; where they cannot, each has a slower way that says the same."""
    try:
        return not _numba().config.DISABLE_JIT
    except ImportError:  # not there, or not made for this NumPy
        return False


def compiled(function: F) -> F:
    """Compiled at the first call and kept on disk; lets other threads run."""
    return _kept(function)


def inlined(function: F) -> F:
    """A part of compiled functions that is written into each: a call for every pixel would cost more than its work."""
    part: F = _numba().njit(nogil=True, inline="always")(function)
    return part


def summed(function: F) -> F:
    """A compiled sum whose terms may be added in another order, which is that of vectors."""
    return _kept(function, fastmath={"reassoc", "contract"})


def instructions(function: Callable[..., object]) -> Callable[..., Any]:
    """A part of compiled functions that builds its code itself."""
    part: Callable[..., Any] = import_module("numba.extending").intrinsic(function)
    return part


def _kept(function: F, **options: Any) -> F:
    try:
        fast: F = _numba().njit(cache=True, nogil=True, **options)(function)
    except (
        RuntimeError
    ):  # no folder to keep it in can be written: it is compiled once in every process
        fast = _numba().njit(nogil=True, **options)(function)
    return fast


def _numba() -> Any:
    """Loading it takes half a second, which who needs it pays."""
    return import_module("numba")
