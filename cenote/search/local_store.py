"""An index in a folder: memory-mapped vectors and a SQLite database, searched exactly.

`vectors-G.bin` holds a row for each image, `words-G.bin` the ids of its nearest words, and
`images.sqlite` everything else, including the number of valid rows. Rows are appended before
SQLite knows of them; removed rows stay in the matrix until a writer compacts it into generation
G + 1. A process that is killed at any moment leaves at most rows that are not valid yet, which the
next writer overwrites, and the rows of a reader never change.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import IO, Any, ClassVar, Self

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from ..data.files import write_atomically
from .approximate import ApproximateIndex, read_approximate, update_approximate
from .database import Moments, MomentSums, check_queries, top_k_of_blocks
from .filters import Filter
from .metadata_db import FILE, MetadataDb, damaged
from .store import (
    ImageEntry,
    IndexBusy,
    IndexDamaged,
    IndexDescription,
    IndexedImage,
    Store,
    StoreWriter,
)

BUDGET = 256 << 20  # bytes of a search, beside the matrix that the system maps into memory
GATHER_BELOW = 4  # views of less than a quarter of the rows are gathered, larger ones masked
MAX_LENGTH_ERROR = 1e-3  # of vectors of unit length
COPY_ROWS = 8192  # rows that compaction copies at a time
COMPACT_ABOVE = 0.25  # share of removed rows
OPEN_ATTEMPTS = 5


class LocalStore(Store):
    """An index as it was when it was opened; `refresh` reads it again."""

    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float16")

    def __init__(self, folder: Path, description: IndexDescription, budget: int = BUDGET) -> None:
        self.folder, self.description, self.budget = folder, description, budget
        self.where = str(folder)
        self.approximate: ApproximateIndex | None = None
        self.snapshot = True  # False while a writer of this store is at work
        self.refresh()
        self.description = description.with_files(self.db.model_relocation.path)

    @classmethod
    def accepts(cls, address: str) -> bool:
        return True

    @classmethod
    def folder_of(cls, address: str) -> Path:
        return Path(address).expanduser()

    @classmethod
    def find(cls, address: str) -> Self | None:
        folder = cls.folder_of(address)
        return cls.open(folder) if (folder / "index.json").is_file() else None

    @classmethod
    def open(
        cls, address: str | Path, description: IndexDescription | None = None, budget: int = BUDGET
    ) -> Self:
        folder = Path(address).expanduser()
        if (folder / "index.json").is_file():
            return cls(folder, read_description(folder), budget)
        if description is None:
            reason = "is not an index" if folder.exists() else "does not exist"
            raise ValueError(f"{folder} {reason}: `cenote index PHOTOS -o {folder}` creates one")
        if description.dtype not in cls.dtypes:
            allowed = " or ".join(cls.dtypes)
            raise ValueError(f"vectors are stored as {allowed}, not as {description.dtype}")
        if folder.exists() and any(
            not path.name.startswith((".", FILE)) for path in folder.iterdir()
        ):
            raise ValueError(f"{folder} contains other files: name a new folder for the index")
        with write_atomically(folder / FILE) as temporary:
            MetadataDb.create(temporary, folder)
        write_description(folder, description)  # the last file: it makes the folder an index
        return cls(folder, description, budget)

    def describe(self, description: IndexDescription) -> None:
        write_description(self.folder, description)
        self.description = description
        MetadataDb(self.folder, snapshot=False).settle_model()

    def refresh(self) -> None:
        for attempt in range(OPEN_ATTEMPTS):
            self.db = MetadataDb(self.folder, self.snapshot)
            try:
                self.matrix = self._map("vectors", self.description.dtype, self.dim)
                n = self.description.words_per_image
                self.word_ids = self._map("words", "int32", n) if n else None
                break
            except FileNotFoundError:  # compacted after the database was opened
                self.db.close()
                if attempt == OPEN_ATTEMPTS - 1:
                    raise damaged(self.folder, "its vectors are missing") from None
        self.rows: Tensor | None = None  # of the view, ascending; None: the whole matrix
        if removed := [row for _, row in self.db.removed()]:
            valid = np.ones(self.db.count, bool)
            valid[removed] = False
            self.rows = torch.from_numpy(np.flatnonzero(valid))
        self.filtered = False
        self._clear_cached()
        if self.approximate is not None:
            self.open_approximate()

    def _clear_cached(self) -> None:
        for name in ("mask", "_moments"):
            self.__dict__.pop(name, None)

    def _map(self, name: str, dtype: str, width: int) -> Tensor:
        rows, path = self.db.count, self.folder / f"{name}-{self.generation}.bin"
        if not rows:
            return torch.from_numpy(np.empty((0, width), dtype))
        expected, size = rows * width * np.dtype(dtype).itemsize, path.stat().st_size
        if size < expected:
            raise damaged(self.folder, f"{path.name} has {size} of {expected} bytes")
        # Copy on write, although nobody writes: torch rejects read-only arrays.
        return torch.from_numpy(np.memmap(path, dtype, "c", shape=(rows, width)))

    @property
    def generation(self) -> int:
        return self.db.generation

    def __len__(self) -> int:
        return len(self.matrix) if self.rows is None else len(self.rows)

    def select(self, filter: Filter) -> Self:
        view = copy.copy(self)
        view._clear_cached()
        if filter:
            view.rows = torch.tensor(self.db.rows(filter), dtype=torch.long)
            view.filtered = True
        return view

    def nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Search approximately if such an index is open and nothing is filtered, else exactly."""
        check_queries(queries, self.dim)
        if self.approximate is not None and not self.filtered:
            return self.approximate.nearest(self, queries, k)
        return self.exact(queries, k)

    def exact(self, queries: Tensor, k: int, first: int = 0) -> tuple[Tensor, Tensor]:
        """Search the rows from `first` on exactly; ties keep the lower row."""
        available = int(self.mask[first:].sum()) if first else len(self)
        k = min(k, available)
        if not k or not len(queries):
            return torch.empty(len(queries), k), torch.empty(len(queries), k, dtype=torch.long)
        height = max(1, min(len(queries), self.budget // (64 * self.dim)))  # queries at a time
        groups = [
            top_k_of_blocks(self._similarities(group, first), group, k)
            for group in queries.float().split(height)
        ]
        scores, rows = zip(*groups, strict=True)
        return torch.cat(scores), torch.cat(rows)

    def _similarities(self, queries: Tensor, first: int) -> Iterator[tuple[Tensor, int | Tensor]]:
        """Yield similarities (Q, n) with their first row or their rows, within the budget.

        Rows of the matrix that are not in the view have a similarity of -inf.
        """
        if self.rows is not None and len(self.rows) * GATHER_BELOW < len(self.matrix):
            width = self._block_rows(len(queries), copied=True)
            for rows in self.rows[self.rows >= first].split(width):
                yield _dot_products(queries, self.matrix[rows]), rows
            return
        mask = None if self.rows is None else self.mask
        width = self._block_rows(len(queries), copied=self.matrix.dtype != torch.float32)
        for start in range(first, len(self.matrix), width):
            similarities = _dot_products(queries, self.matrix[start : start + width])
            if mask is not None:
                similarities.masked_fill_(~mask[start : start + width], -torch.inf)
            yield similarities, start

    def _block_rows(self, queries: int, copied: bool) -> int:
        """Return how many rows fit the budget.

        It holds their similarities, what is selected from them, and copies of the rows: one if
        they are gathered, and with several queries one that each thread of the product makes.
        """
        copies = copied + (torch.get_num_threads() if queries > 1 else 0)
        return max(1, self.budget // (16 * queries + 8 * self.dim * copies))

    @cached_property
    def mask(self) -> Tensor:
        """Which rows of the matrix are in the view (rows,)."""
        mask = torch.full((len(self.matrix),), self.rows is None)
        if self.rows is not None:
            mask[self.rows] = True
        return mask

    def scan(self, vectors: Tensor) -> tuple[Tensor, Tensor] | None:
        check_queries(vectors, self.dim)
        is_approximate = self.approximate is not None and not self.filtered
        if is_approximate or 16 * len(vectors) * len(self) > self.budget:
            return None
        rows = torch.arange(len(self.matrix)) if self.rows is None else self.rows
        blocks = [similarities for similarities, _ in self._similarities(vectors.float(), 0)]
        if not blocks:
            return torch.empty(len(vectors), 0), rows
        similarities = torch.cat(blocks, 1)
        if similarities.shape[1] != len(rows):
            similarities = similarities[:, rows]
        return similarities, rows

    def vectors(self, rows: Tensor) -> Tensor:
        return self.matrix[rows].float()

    def words(self, rows: Tensor) -> Tensor | None:
        return None if self.word_ids is None else self.word_ids[rows].long()

    def drop_words(self) -> None:
        self.word_ids = None

    def entries(self, rows: Tensor) -> list[ImageEntry]:
        return self.db.entries(rows.tolist())

    def images(self) -> dict[str, IndexedImage]:
        return self.db.images()

    def sample(self, count: int) -> list[IndexedImage]:
        places = torch.linspace(0, max(len(self) - 1, 0), min(count, len(self)))
        rows = places.round().long().unique()
        if self.rows is not None:
            rows = self.rows[rows]
        return [IndexedImage(*pair) for pair in zip(rows.tolist(), self.entries(rows), strict=True)]

    def rows_with_digest(self, digest: str) -> list[int]:
        return self.db.rows_with_digest(digest)

    def distinct_values(self, column: str) -> list[str]:
        return sorted(self.db.distinct_values(column))

    def moments(self) -> Moments:
        return self._moments

    @cached_property
    def _moments(self) -> Moments:
        if not self.filtered or self.rows is None:
            return current_sums(self.db, self.matrix)[0].moments()
        sums = MomentSums(self.dim)
        for rows in self.rows.split(self._block_rows(1, copied=True)):
            sums.add(self.vectors(rows))
        return sums.moments()

    def open_approximate(self) -> bool:
        self.approximate = read_approximate(self)
        return self.approximate is not None

    def update_approximate(self, mode: str = "auto", texts: Tensor | None = None) -> str | None:
        return update_approximate(self, mode, texts)

    def writer(self) -> LocalWriter:
        return LocalWriter(self)


def _dot_products(queries: Tensor, block: Tensor) -> Tensor:
    block = block.float()
    if len(queries) == 1:  # twice as fast
        return (block @ queries[0])[None]
    return queries @ block.T


class LocalWriter(StoreWriter):
    """One writer at a time; valid rows are never overwritten."""

    def __init__(self, store: LocalStore) -> None:
        self.store, self.folder, self.description = store, store.folder, store.description
        self.lock = FileLock(self.folder / "lock", timeout=0)  # a killed process releases it

    def __enter__(self) -> Self:
        try:
            self.lock.acquire()
        except Timeout:
            raise IndexBusy(
                f"another process is writing to {self.folder}: try again when it has finished"
            ) from None
        try:
            self.db = MetadataDb(self.folder, snapshot=False)
            self._settle()
            self._delete_old_generations()
            # The store sees what others wrote before, without a snapshot: SQLite's log would grow
            # until the snapshot is released.
            self.store.snapshot = False
            self.store.refresh()
        except BaseException:
            self.store.snapshot = True
            self.lock.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if not isinstance(error, IndexDamaged):
                self._store_sums()
        finally:
            self.db.close()
            self.lock.release()
            self.store.snapshot = True
        self.store.refresh()

    def put(
        self, entries: Sequence[ImageEntry], vectors: Tensor, words: Tensor | None = None
    ) -> None:
        self._check(len(entries), vectors, words)
        positions = {entry.path: i for i, entry in enumerate(entries)}  # of equal paths the last
        places = list(positions.values())
        with self.db.transaction():
            count = int(self.db.state("count"))
            rows = vectors.detach().cpu().numpy()[places].astype(self.description.dtype)
            self._append("vectors", count, rows)
            if words is not None:
                self._append("words", count, words.cpu().numpy()[places].astype(np.int32))
            self.db.remove(self.db.rows_of(positions))
            self.db.insert(count, [entries[i] for i in places])
            self.db.set_state(count=count + len(places))
        self.db.count = count + len(places)

    def _check(self, count: int, vectors: Tensor, words: Tensor | None) -> None:
        n = self.description.words_per_image
        expected = (count, self.description.dim), (count, n) if n else None
        shapes = tuple(vectors.shape), None if words is None else tuple(words.shape)
        if shapes != expected:
            raise ValueError(f"vectors and words must have the shapes {expected}, got {shapes}")
        lengths = vectors.float().norm(dim=1)
        if not bool(((lengths - 1).abs() < MAX_LENGTH_ERROR).all()):
            raise ValueError("vectors of an index must be finite and of length 1")

    def update(self, entries: Sequence[ImageEntry]) -> None:
        with self.db.transaction():
            self.db.update(entries)

    def remove(self, paths: Iterable[str]) -> int:
        with self.db.transaction():
            rows = self.db.rows_of(dict.fromkeys(paths))
            self.db.remove(rows)
        return len(rows)

    def compact(self, share: float = COMPACT_ABOVE) -> bool:
        """Drop removed rows from the matrix if they are more than this share of it."""
        count = self.db.count
        if len(self.db.removed()) <= share * count:
            return False
        with self.db.transaction():
            old, new = self.db.generation, self.db.generation + 1
            rows = np.array(self.db.renumber(), np.int64)
            for name, dtype, width in self._files():
                path = self.folder / f"{name}-{old}.bin"
                matrix = np.memmap(path, dtype, "r", shape=(count, width))
                with open(self.folder / f"{name}-{new}.bin", "wb") as file:
                    for start in range(0, len(rows), COPY_ROWS):
                        file.write(matrix[rows[start : start + COPY_ROWS]].tobytes())
                    _flush(file)
            self.db.set_state(count=len(rows), generation=new)
            # Summed anew, which also drops rounding errors.
            self.db.connection.execute("delete from state where name like 'sums%'")
        self.db.count, self.db.generation = len(rows), new
        self._delete_old_generations()
        return True

    def _files(self) -> Iterator[tuple[str, str, int]]:
        yield "vectors", self.description.dtype, self.description.dim
        if n := self.description.words_per_image:
            yield "words", "int32", n

    def _append(self, name: str, count: int, values: Any) -> None:
        path = self.folder / f"{name}-{self.db.generation}.bin"
        if not path.exists() and count:
            raise damaged(self.folder, f"{path.name} is missing")
        with open(path, "r+b" if path.exists() else "wb") as file:
            file.seek(count * values.shape[1] * values.itemsize)  # after the last valid row
            file.truncate()
            file.write(values.tobytes())
            _flush(file)

    def _store_sums(self) -> None:
        """Store the moments, once per writer: they are megabytes."""
        self.db.count = int(self.db.state("count"))
        if not self.db.count:
            return
        path = self.folder / f"vectors-{self.db.generation}.bin"
        shape = (self.db.count, self.description.dim)
        matrix = torch.from_numpy(np.memmap(path, self.description.dtype, "c", shape=shape))
        sums, rows, number = current_sums(self.db, matrix)
        if (rows, number) != (self.db.state("sums_rows"), self.db.state("sums_gone")):
            with self.db.transaction():
                self.db.set_state(sums=sums.to_bytes(), sums_rows=rows, sums_gone=number)

    def _settle(self) -> None:
        """Store the present paths of an index that was moved."""
        if self.db.model_relocation.moved:
            stored = read_description(self.folder)
            write_description(self.folder, stored.with_files(self.db.model_relocation.path))
        if self.db.relocation.moved or self.db.model_relocation.moved or not self.db.state("home"):
            self.db.settle()

    def _delete_old_generations(self) -> None:
        """Delete files that no new reader opens; open readers keep them on Unix."""
        for path in self.folder.glob("*-*.bin"):
            if path.stem.rpartition("-")[2] != str(self.db.generation):
                with suppress(PermissionError):  # Windows: a reader has it open
                    path.unlink(missing_ok=True)


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def current_sums(db: MetadataDb, matrix: Tensor) -> tuple[MomentSums, int, int]:
    """Bring the stored sums up to date with the rows added and removed since.

    Returns also the number of rows and the number of the last removal that they include.
    """
    stored = db.state("sums")
    sums = MomentSums(matrix.shape[1]) if stored is None else MomentSums.from_bytes(stored)
    rows, number = int(db.state("sums_rows", 0)), int(db.state("sums_gone", 0))
    removed = db.removed(number)
    sums.add(matrix[rows : db.count])
    sums.add(matrix[torch.tensor([row for _, row in removed], dtype=torch.long)], -1)
    return sums, db.count, removed[-1][0] if removed else number


def write_description(folder: Path, description: IndexDescription) -> None:
    with write_atomically(folder / "index.json") as temporary:
        temporary.write_text(json.dumps(description.asdict(), indent=2) + "\n", encoding="utf-8")


def read_description(folder: Path) -> IndexDescription:
    try:
        text = (folder / "index.json").read_text(encoding="utf-8")
        description = IndexDescription(**json.loads(text))
        is_valid = (
            description.dtype in LocalStore.dtypes
            and isinstance(description.dim, int)
            and description.dim > 0
            and isinstance(description.words, dict)
            and isinstance(description.words.get("n", 0), int)
        )
    except (ValueError, TypeError, OSError) as error:
        raise damaged(folder, f"index.json: {error}") from None
    if description.format != IndexDescription.format:
        raise ValueError(
            f"{folder} has format {description.format} of a newer Cenote: update Cenote"
        )
    if not is_valid:
        raise damaged(folder, "index.json has wrong values")
    return description
