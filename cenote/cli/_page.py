"""The command behind a page, as a reader would type it."""

from __future__ import annotations

import shlex
import sys
from contextvars import ContextVar

ASKED: ContextVar[tuple[str, ...]] = ContextVar(
    "asked", default=()
)  # what main was given, if not sys.argv


def command() -> str:
    return shlex.join(["cenote", *(ASKED.get() or sys.argv[1:])])
