"""Plain functions made fast by numba, the only file that knows it. Import what uses it inside a function."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import TypeVar

from ..extras import require

F = TypeVar("F", bound=Callable[..., object])


@cache
def available() -> bool:
    return find_spec("numba") is not None


def compiled(function: F) -> F:
    """Compiled at the first call and kept on disk; lets other threads run."""
    fast: F = require("numba", extra="fast").njit(cache=True, nogil=True)(function)
    return fast


def inlined(function: F) -> F:
    """A part of compiled functions that is written into each: a call for every pixel would cost more than its work."""
    part: F = require("numba", extra="fast").njit(nogil=True, inline="always")(function)
    return part
