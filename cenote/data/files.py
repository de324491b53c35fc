"""Atomic writes, where a file has its final name only when it is complete, and locks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; rename it to `path` on success, else delete it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays at the end: libraries choose the format by it. The process id keeps
    # concurrent runs apart.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def try_lock(path: Path) -> BaseFileLock | None:
    """Return the held lock of a file; None if another process holds it.

    The operating system releases the lock when the process ends, however it ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    return lock
