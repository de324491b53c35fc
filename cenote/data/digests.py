"""Digests of image contents, cached by path, size and modification time."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from ..progress import progress_bar
from .dataset import Dataset, images_are_files
from .images import open_regular, read_image
from .video import is_video_name, split_frame

DIGEST_BYTES = 16
PIECE = 1 << 14  # bytes of the beginning, the middle and the end of a large file
CHUNK = 1000  # files between two writes to the database
CREATE = """
    create table if not exists contents (path blob primary key, size int, time int, digest blob)
"""


def digest_of(*chunks: bytes) -> bytes:
    """Return a digest of bytes that is the same on every machine."""
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for chunk in chunks:
        state.update(chunk)
    return state.digest()


def digests(dataset: Dataset, memory: Path | None = None) -> list[bytes | None]:
    """Return the digest of each image, None if its file cannot be read.

    `memory` is a database of earlier digests: a file of unchanged size and modification time is
    not read again.
    """
    if content := getattr(dataset.pixels, "content", None):  # the bytes of image files
        contents = (content(int(row)) for row in dataset.rows)
        return [digest_of(data) if data else None for data in contents]
    if not images_are_files(dataset.pixels):
        return [_digest_image(partial(dataset.image, i)) for i in range(len(dataset))]
    paths = [os.fspath(dataset.path(i)) for i in range(len(dataset))]
    if memory is None:
        with ThreadPoolExecutor() as threads:
            return list(threads.map(_digest_file, paths))
    memory.parent.mkdir(parents=True, exist_ok=True)
    with closing(_open_memory(memory)) as database, ThreadPoolExecutor() as threads:
        parts = [paths[start : start + CHUNK] for start in range(0, len(paths), CHUNK)]
        name, count = "looking for cached features", len(parts)
        chunks = progress_bar(name, count, iterable=parts, unit_scale=CHUNK, delay=1)
        return [digest for chunk in chunks for digest in _cached(chunk, database, threads)]


def _open_memory(path: Path) -> sqlite3.Connection:
    """Open the database of digests; a damaged one is replaced, because it only saves time."""
    for attempt in range(2):
        database = sqlite3.connect(path, timeout=60)
        try:
            with database:
                database.execute(CREATE)
                database.execute("select path, size, time, digest from contents limit 1")
            break
        except sqlite3.DatabaseError as error:
            database.close()
            is_damaged = not isinstance(error, sqlite3.OperationalError) or "no such" in str(error)
            if attempt or not is_damaged:
                raise ValueError(f"{path} cannot be used: {error}") from error
            path.unlink(missing_ok=True)
    return database


class FileState(NamedTuple):
    """Size, modification time and digest of a file; the digest is empty if it is not readable."""

    size: int
    time: int
    digest: str


def file_states(
    datasets: Iterable[Dataset], before: Mapping[str, FileState]
) -> dict[str, FileState]:
    """Return the state of each image that is a file, by its name in the data set.

    A file with the size and the time of `before` has its digest, too. Of a large file the
    beginning, the middle and the end are read: they differ for two compressed images.
    """
    files = {
        os.fsencode(data[i].image).decode(errors="backslashreplace"): os.fspath(data.path(i))
        for data in datasets
        if images_are_files(data.pixels)
        for i in range(len(data))
    }

    def state_of(item: tuple[str, str]) -> FileState:
        name, path = item
        size, time = _file_state(path) or (-1, -1)
        saved = before.get(name)
        if saved is not None and (saved.size, saved.time) == (size, time):
            return saved
        return FileState(size, time, _quick_digest(split_frame(path)[0], size))

    with ThreadPoolExecutor() as threads:
        return dict(zip(files, threads.map(state_of, files.items()), strict=True))


def _quick_digest(path: str | Path, size: int) -> str:
    with suppress(OSError, ValueError), open_regular(path) as file:
        pieces = [file.read(PIECE)]
        for start in (size // 2, size - PIECE):
            file.seek(max(start, 0))
            pieces.append(file.read(PIECE))
        return digest_of(*pieces).hex()
    return ""


def _cached(
    paths: list[str], database: sqlite3.Connection, threads: ThreadPoolExecutor
) -> Iterator[bytes | None]:
    absolute = [os.path.abspath(path) for path in paths]
    states = dict(zip(absolute, threads.map(_file_state, absolute), strict=True))
    placeholders = ",".join("?" * len(absolute))
    rows = database.execute(
        f"select path, size, time, digest from contents where path in ({placeholders})",
        [os.fsencode(path) for path in absolute],  # bytes: a name need not be text
    )
    cached = {}
    for encoded, size, time, digest in rows:
        path = os.fsdecode(encoded)
        if states[path] == (size, time):
            cached[path] = digest
    stale = [path for path, state in states.items() if state is not None and path not in cached]
    fresh = dict(zip(stale, threads.map(_digest_file, stale), strict=True))
    changed = [
        (os.fsencode(p), *(states[p] or ()), digest) for p, digest in fresh.items() if digest
    ]
    with database:
        database.executemany("insert or replace into contents values (?, ?, ?, ?)", changed)
    return (cached.get(path) or fresh.get(path) for path in absolute)


def _file_state(path: str) -> tuple[int, int] | None:
    with suppress(OSError):
        status = os.stat(split_frame(path)[0])
        return status.st_size, status.st_mtime_ns
    return None


def _digest_file(path: str) -> bytes | None:
    if is_video_name(path) and (digest := _digest_image(partial(read_image, path))):
        return digest
    with suppress(OSError, ValueError), open_regular(path) as file:
        return digest_of(*iter(lambda: file.read(1 << 20), b""))
    return None


def _digest_image(read: Callable[[], Image.Image]) -> bytes | None:
    with suppress(ValueError):
        pixels = np.asarray(read())
        return digest_of(repr(pixels.shape).encode(), pixels.tobytes())
    return None
