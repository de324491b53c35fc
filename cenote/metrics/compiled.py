"""Plain functions made fast by numba. Import what uses it inside a function."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar

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


def summed(function: F) -> F:
    """A compiled sum whose terms may be added in another order, which is that of vectors."""
    numba = require("numba", extra="fast")
    fast: F = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})(function)
    return fast


def instructions(function: Callable[..., object]) -> Callable[..., Any]:
    """A part of compiled functions that builds its code itself."""
    part: Callable[..., Any] = require("numba.extending", extra="fast").intrinsic(function)
    return part
