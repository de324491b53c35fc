"""Features on disk, computed once: rows of a memory-mapped file, found by the contents of the image they come from.

A store is a folder with three files. `rows.bin` holds the features, `digests.bin` the images they belong to, in the
same order, `store.json` what one row looks like. Rows are appended under a lock, the digest after its row, so a
process killed at any moment leaves at most bytes without a digest, which the next one cuts off.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .files import write_atomically

DIGEST = 16  # bytes
DTYPES = ("float16", "float32")
Array = npt.NDArray[Any]


class Layout(NamedTuple):
    """One row: `tokens` x `dim` values on a grid, and a CLS token behind them where there is one."""

    grid: tuple[int, int]
    dim: int
    cls: bool
    dtype: str = "float16"

    @property
    def vectors(self) -> int:
        return self.grid[0] * self.grid[1] + self.cls


class FeatureStore:
    """Features of one backbone, its weights and one transform, for any number of images."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.folder, self.layout = folder, layout
        self._rows = folder / "rows.bin"
        self._digests = folder / "digests.bin"
        self._known: dict[bytes, int] = {}
        self._count = 0  # rows that have a digest
        self._file = -1  # which file the digests were read from: another after somebody pruned
        self.refresh()

    def __len__(self) -> int:
        return self._count

    @property
    def row_bytes(self) -> int:
        return self.layout.vectors * self.layout.dim * np.dtype(self.layout.dtype).itemsize

    def find(self, digests: Sequence[bytes]) -> npt.NDArray[np.int64]:
        """The row of each, -1 where there is none."""
        return np.array([self._known.get(digest, -1) for digest in digests], np.int64)

    def refresh(self) -> None:
        """Learn what other processes have added."""
        number, seen = _number(self._digests), _size(self._digests) // DIGEST
        if number != self._file or seen < self._count:
            self._known, self._count, self._file = {}, 0, number
        if seen == self._count:
            return
        with open(self._digests, "rb") as file:
            file.seek(self._count * DIGEST)
            added = file.read((seen - self._count) * DIGEST)
        for start in range(0, len(added) - DIGEST + 1, DIGEST):
            self._known[added[start : start + DIGEST]] = self._count
            self._count += 1

    def append(self, digests: Sequence[bytes], values: Array) -> None:
        """Rows (n, vectors, dim) of n images. What another process has brought meanwhile is not written twice."""
        wanted = (len(digests), self.layout.vectors, self.layout.dim)
        if values.shape != wanted:
            raise ValueError(
                f"this store takes rows {wanted[1:]}, got {values.shape[1:]} for {len(digests)} images"
            )
        with np.errstate(over="ignore"):  # checked below
            packed = values.astype(self.layout.dtype)
        if not np.isfinite(packed).all():
            remedy = (
                ""
                if self.layout.dtype == "float32" or not np.isfinite(values).all()
                else ": use float32"
            )
            raise ValueError(f"the features are not finite as {self.layout.dtype}{remedy}")
        with self._locked():
            self.refresh()
            new = [i for i, digest in enumerate(digests) if digest not in self._known]
            new = list(
                {digests[i]: i for i in new}.values()
            )  # one image twice in a batch is one row
            with open(self._rows, "r+b" if self._rows.exists() else "wb") as file:
                file.seek(self._count * self.row_bytes)  # over the remains of a process that died
                file.truncate()
                file.write(packed[new].tobytes())
                file.flush()
                os.fsync(file.fileno())
            with open(self._digests, "r+b" if self._digests.exists() else "wb") as file:
                file.seek(self._count * DIGEST)
                file.truncate()
                file.write(b"".join(digests[i] for i in new))
            self.refresh()

    def values(self) -> Array:
        """All rows (rows, vectors, dim), memory-mapped and read-only."""
        shape = (len(self), self.layout.vectors, self.layout.dim)
        if not len(self):
            return np.zeros(shape, self.layout.dtype)
        return np.memmap(self._rows, self.layout.dtype, "r", shape=shape)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)  # somebody may have pruned it
        with open(self.folder / "lock", "wb") as file:
            fcntl.flock(
                file, fcntl.LOCK_EX
            )  # let go of when the file is closed, also by a killed process
            yield


class FeatureCache:
    """Stores side by side in one folder, each under the digest of what made it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, made_by: dict[str, Any], layout: Layout) -> FeatureStore:
        """The store of these settings (backbone, weights, transform), made if it is new."""
        if layout.dtype not in DTYPES:
            raise ValueError(f"features are kept as {' or '.join(DTYPES)}, not {layout.dtype}")
        description = {"made_by": made_by, "layout": layout._asdict()}
        name = digest_of(json.dumps(description, sort_keys=True).encode()).hex()
        folder = self.folder / name
        if not (folder / "store.json").exists():
            with write_atomically(folder / "store.json") as temporary:
                temporary.write_text(json.dumps(description, indent=2, sort_keys=True))
        os.utime(folder / "store.json")  # when it was last used
        return FeatureStore(folder, layout)

    def stores(self) -> list[dict[str, Any]]:
        """What lies here: settings, rows, bytes and when it was last used, the latest first."""
        found = []
        for path in self.folder.glob("*/store.json"):
            size, rows = (
                _size(path.with_name("rows.bin")),
                _size(path.with_name("digests.bin")) // DIGEST,
            )
            used = path.stat().st_mtime
            found.append(
                {
                    "name": path.parent.name,
                    "rows": rows,
                    "bytes": size,
                    "used": used,
                    **_description(path),
                }
            )
        return sorted(found, key=lambda store: -store["used"])

    def prune(self, names: Sequence[str] = (), unused_days: float | None = None) -> list[str]:
        """Remove stores by the beginning of their name, or those not used for so many days."""
        removed = []
        for store in self.stores():
            old = unused_days is not None and time.time() - store["used"] > unused_days * 86400
            if old or any(store["name"].startswith(name) for name in names):
                gone = self.folder / f".{store['name']}.{os.getpid()}"
                os.replace(
                    self.folder / store["name"], gone
                )  # at once, for whoever is writing to it
                shutil.rmtree(gone)
                removed.append(store["name"])
        return removed


def cache_folder() -> Path:
    """Where features are kept: CENOTE_CACHE, or the user's cache folder."""
    given = os.environ.get("CENOTE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(base) / "cenote" / "features"


def digest_of(*parts: bytes) -> bytes:
    """Of bytes, the same on every machine."""
    state = hashlib.blake2b(digest_size=DIGEST)
    for part in parts:
        state.update(part)
    return state.digest()


def _description(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except ValueError:
        return {"made_by": {}, "layout": {}}


def _number(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return -1


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
