"""Nothing half-written under a final name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """A temporary name to write to, in the same folder; it becomes `path` if all went well, and is gone if not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays at the end: libraries choose the format by it. The process number keeps two runs apart.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
