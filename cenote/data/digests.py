"""Which images are the same, whatever they are called: digests of their contents, remembered by path, size and time."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np

from .dataset import Dataset, images_are_files

DIGEST_BYTES = 16
CHUNK = 1000  # files between two writes of the memory


def digest_of(*parts: bytes) -> bytes:
    """Return a digest of bytes that is the same on every machine."""
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        state.update(part)
    return state.digest()


def digests(dataset: Dataset, memory: Path | None = None) -> list[bytes | None]:
    """One for each image, None where its file cannot be read.

    `memory` is a database of earlier digests: a file whose size and time of change are the same is not read again.
    """
    if not images_are_files(dataset.pixels):
        return [_of_pixels(dataset, i) for i in range(len(dataset))]
    paths = [os.fspath(dataset.path(i)) for i in range(len(dataset))]
    if memory is None:
        with ThreadPoolExecutor() as threads:
            return list(threads.map(_of_file, paths))
    memory.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(memory, timeout=60)) as database, ThreadPoolExecutor() as threads:
        with database:
            database.execute(
                "create table if not exists contents (path blob primary key, size int, time int, digest blob)"
            )
        chunks = [paths[start : start + CHUNK] for start in range(0, len(paths), CHUNK)]
        return [digest for chunk in chunks for digest in _remembered(chunk, database, threads)]


def _remembered(
    paths: list[str], database: sqlite3.Connection, threads: ThreadPoolExecutor
) -> Iterator[bytes | None]:
    real = [os.path.abspath(path) for path in paths]
    states = dict(zip(real, threads.map(_state, real), strict=True))
    marks = ",".join("?" * len(real))
    keys = [os.fsencode(path) for path in real]  # a name need not be text
    rows = database.execute(
        f"select path, size, time, digest from contents where path in ({marks})", keys
    )
    found = {os.fsdecode(path): (size, time, digest) for path, size, time, digest in rows}
    known = {
        path: digest for path, (*state, digest) in found.items() if states[path] == tuple(state)
    }
    unknown = [path for path, state in states.items() if state is not None and path not in known]
    fresh = dict(zip(unknown, threads.map(_of_file, unknown), strict=True))
    with database:
        news = [
            (os.fsencode(path), *(states[path] or ()), digest)
            for path, digest in fresh.items()
            if digest
        ]
        database.executemany("insert or replace into contents values (?, ?, ?, ?)", news)
    return (known.get(path) or fresh.get(path) for path in real)


def _state(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _of_file(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return digest_of(*iter(lambda: file.read(1 << 20), b""))
    except OSError:
        return None


def _of_pixels(dataset: Dataset, i: int) -> bytes | None:
    try:
        pixels = np.asarray(dataset.image(i))
    except ValueError:
        return None
    return digest_of(repr(pixels.shape).encode(), pixels.tobytes())
