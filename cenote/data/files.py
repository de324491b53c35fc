"""Atomic writes: a file never has its final name before it is complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
