"""Changing an embedded index: one writer at a time, and nothing that counts is ever overwritten."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .local_store import caught_up, read_description
from .metadata_db import MetadataDb
from .store import ImageEntry, IndexBusy, IndexDamaged

if TYPE_CHECKING:
    from .local_store import LocalStore

LENGTH = 1e-3  # how far from 1 a vector's length may be
COPIED = 8192  # rows at a time


class Writing:
    def __init__(self, index: LocalStore) -> None:
        self.index, self.folder, self.description = index, index.folder, index.description

    def __enter__(self) -> Writing:
        self.lock = open(self.folder / "lock", "wb")
        try:
            fcntl.flock(
                self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB
            )  # let go of when closed, also by a killed process
        except OSError:
            self.lock.close()
            raise IndexBusy(
                f"another process is writing to {self.folder}: try again when it is done"
            ) from None
        try:
            self.table = MetadataDb(self.folder, snapshot=False)
            self._settle()
            self._sweep()
            # The index sees what others wrote before, and without a snapshot of its own: SQLite's log would grow until
            # it is let go of.
            self.index.snapshot = False
            self.index.refresh()
        except BaseException:
            self.index.snapshot = True
            self.lock.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            if not isinstance(error, IndexDamaged):
                self._keep_sums()
        finally:
            self.table.close()
            self.lock.close()
            self.index.snapshot = True
        self.index.refresh()

    def put(
        self, entries: Sequence[ImageEntry], vectors: Tensor, words: Tensor | None = None
    ) -> None:
        n = int(self.description.words.get("n", 0))
        if vectors.shape != (len(entries), self.description.dim):
            wanted = f"({len(entries)}, {self.description.dim})"
            raise ValueError(
                f"{len(entries)} images have vectors {wanted}, got {tuple(vectors.shape)}"
            )
        if bool(n) != (words is not None) or (
            words is not None and words.shape != (len(entries), n)
        ):
            raise ValueError(
                f"this index keeps {n} words an image, got {None if words is None else tuple(words.shape)}"
            )
        lengths = vectors.float().norm(dim=1)
        if not bool(((lengths - 1).abs() < LENGTH).all()):
            raise ValueError("vectors of an index are finite and of length 1")
        last = {entry.path: i for i, entry in enumerate(entries)}  # one path twice: the later one
        chosen = list(last.values())
        with self.table.transaction():
            count = int(self.table.state("count"))
            self._append(
                "vectors",
                count,
                vectors.detach().cpu().numpy()[chosen].astype(self.description.dtype),
            )
            if words is not None:
                self._append("words", count, words.cpu().numpy()[chosen].astype(np.int32))
            self.table.remove(self.table.rows_of(last))
            self.table.insert(count, [entries[i] for i in chosen])
            self.table.set_state(count=count + len(chosen))
        self.table.count = count + len(chosen)

    def update(self, entries: Sequence[ImageEntry]) -> None:
        with self.table.transaction():
            self.table.update(entries)

    def remove(self, paths: Iterable[str]) -> int:
        with self.table.transaction():
            rows = self.table.rows_of(dict.fromkeys(paths))
            self.table.remove(rows)
        return len(rows)

    def compact(self, share: float = 0.25) -> bool:
        """Leave out rows that do not count, if they are more than this share of all."""
        gone, count = len(self.table.gone()), self.table.count
        if gone <= share * count:
            return False
        with self.table.transaction():
            old, new = self.table.generation, self.table.generation + 1
            rows = np.array(self.table.renumber(), np.int64)
            for name, dtype, width in self._files():
                before = np.memmap(
                    self.folder / f"{name}-{old}.bin", dtype, "r", shape=(count, width)
                )
                with open(self.folder / f"{name}-{new}.bin", "wb") as file:
                    for start in range(0, len(rows), COPIED):
                        file.write(before[rows[start : start + COPIED]].tobytes())
                    _safe(file)
            self.table.set_state(count=len(rows), generation=new)
            self.table.base.execute(
                "delete from state where name like 'sums%'"
            )  # summed anew: no rounding is kept
        self.table.count, self.table.generation = len(rows), new
        self._sweep()
        return True

    def _append(self, name: str, count: int, values: Any) -> None:
        path = self.folder / f"{name}-{self.table.generation}.bin"
        if not path.exists() and count:
            raise IndexDamaged(f"{path} is gone: index the images again, into a new folder")
        with open(path, "r+b" if path.exists() else "wb") as file:
            file.seek(
                count * values.shape[1] * values.itemsize
            )  # over the remains of a process that died
            file.truncate()
            file.write(values.tobytes())
            _safe(file)

    def _keep_sums(self) -> None:
        """At the end only: they are megabytes. Whoever is killed before leaves them to the next."""
        self.table.count = int(self.table.state("count"))
        if not self.table.count:
            return
        path = self.folder / f"vectors-{self.table.generation}.bin"
        shape = (self.table.count, self.description.dim)
        matrix = torch.from_numpy(np.memmap(path, self.description.dtype, "c", shape=shape))
        sums, rows, number = caught_up(self.table, matrix)
        if (rows, number) != (self.table.state("sums_rows"), self.table.state("sums_gone")):
            with self.table.transaction():
                self.table.set_state(sums=sums.packed(), sums_rows=rows, sums_gone=number)

    def _files(self) -> list[tuple[str, str, int]]:
        n = int(self.description.words.get("n", 0))
        return [
            ("vectors", self.description.dtype, self.description.dim),
            *([("words", "int32", n)] if n else []),
        ]

    def _settle(self) -> None:
        """In the folder where it is now, if it was moved. Its model and word list too, unless others are in their old
        places: then only who opens them can tell which are its own."""
        made, places = read_description(self.folder), self.table.model_places
        now = places.description(made)
        if made != now == places.description(made, beside=True):
            self.index.describe(now)
        if self.table.places or self.table.state("home") is None:
            self.table.settle()

    def _sweep(self) -> None:
        """Other generations: readers that still use one keep it open."""
        for path in self.folder.glob("*-*.bin"):
            if path.stem.rpartition("-")[2] != str(self.table.generation):
                path.unlink(missing_ok=True)


def _safe(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
