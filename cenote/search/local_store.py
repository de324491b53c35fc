"""An index in a folder: memory-mapped vectors and a SQLite database, searched exactly.

`vectors-G.bin` holds a row for each image, `words-G.bin` the ids of its nearest words,
`local-G.bin` its local vectors, and `images.sqlite` everything else, including the number of valid
rows. Rows are appended before SQLite knows of them; removed rows stay in the matrix until a writer
compacts it into generation G + 1. A process that is killed at any moment leaves at most rows that
are not valid yet, which the next writer overwrites, and the rows of a reader never change.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from ..data.files import write_atomically, write_text
from .approximate import ApproximateIndex, read_approximate, update_approximate
from .database import BUDGET, Moments, MomentSums, nearest_rows, similarity_blocks
from .metadata_db import FILE, MetadataDb, damaged
from .store import (
    Filter,
    ImageEntry,
    IndexBusy,
    IndexDamaged,
    IndexDescription,
    IndexedImage,
    Store,
    StoreWriter,
    TextHits,
)

MAX_LENGTH_ERROR = 1e-3  # of vectors of unit length
COPY_ROWS = 8192  # rows that are copied at a time
COMPACT_ABOVE = 0.25  # share of removed rows
OPEN_ATTEMPTS = 5


class LocalStore(Store):
    """An index as it was when it was opened; `refresh` reads it again."""

    stores_local: ClassVar[bool] = True
    # Of the last filter: reading its rows takes seconds in an index of millions.
    last_view: tuple[Filter, Any] | None = None
    budget = BUDGET  # bytes of a search, beside the matrix that the system maps into memory

    def __init__(self, folder: Path, description: IndexDescription) -> None:
        self.folder, self.where, self.description = folder, str(folder), description
        self.approximate: ApproximateIndex | None = None
        self.snapshot = True  # False while a writer of this store is at work
        self.refresh()
        self.description = description.with_files(self.db.relocation.path)
        if not self.db.texts.exists and os.access(folder, os.W_OK):
            with suppress(IndexBusy), self.writer():  # another writer does it otherwise
                pass

    @classmethod
    def accepts(cls, address: str) -> bool:
        return True

    @classmethod
    def folder_of(cls, address: str) -> Path:
        return Path(address).expanduser()

    @classmethod
    def find(cls, address: str) -> Self | None:
        folder = cls.folder_of(address)
        if not (folder / "index.json").is_file():
            return None
        return cls(folder, read_description(folder))

    @classmethod
    def create(cls, address: str, description: IndexDescription) -> Self:
        folder = cls.folder_of(address)
        if not all(path.name.startswith((".", FILE)) for path in folder.glob("*")):
            raise ValueError(f"{folder} contains other files: name a new folder for the index")
        with write_atomically(folder / FILE) as temporary:
            MetadataDb.create(temporary, folder)
        write_description(folder, description)  # the last file: it makes the folder an index
        return cls(folder, description)

    def describe(self, description: IndexDescription) -> None:
        with self.writer():  # which stores the present paths of an index that was moved
            write_description(self.folder, description)
        self.description = description

    def refresh(self) -> None:
        n = self.description.words_per_image
        for attempt in range(OPEN_ATTEMPTS):
            self.db = MetadataDb(self.folder, self.snapshot)
            try:
                self.matrix = self._map("vectors", self.description.dtype, self.dim)
                self.word_ids = self._map("words", "int32", n)
                self.local_rows = self._map("local", "float16", self.description.local_width)
                break
            except FileNotFoundError:  # compacted after the database was opened
                self.db.close()
                if attempt == OPEN_ATTEMPTS - 1:
                    raise damaged(self.folder, "its vectors are missing") from None
        self.rows = torch.arange(self.db.count)  # of the view, ascending
        if removed := [row for _, row in self.db.removed()]:
            self.rows = torch.from_numpy(np.delete(self.rows.numpy(), removed))
        self.filtered = False
        self._forget_view()
        if self.approximate is not None:
            self.open_approximate()

    def release(self) -> None:
        """Close all files: a snapshot makes SQLite's log grow, a mapped file keeps a disk busy."""
        self.db.close()
        self.matrix = self.word_ids = self.local_rows = torch.empty(0, self.dim)

    def _map(self, name: str, dtype: str, width: int) -> Tensor:
        rows, path = self.db.count, self.folder / f"{name}-{self.db.generation}.bin"
        if not rows or not width:
            return torch.from_numpy(np.empty((rows, width), dtype))
        expected, size = rows * width * np.dtype(dtype).itemsize, path.stat().st_size
        if size < expected:
            raise damaged(self.folder, f"{path.name} has {size} of {expected} bytes")
        # Copy on write, although nobody writes: torch rejects read-only arrays.
        return torch.from_numpy(np.memmap(path, dtype, "c", shape=(rows, width)))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def version(self) -> object:
        # Rows are appended, also those that replace others, or removed.
        return self.db.generation, self.db.count, len(self.rows)

    def select(self, filter: Filter) -> Self:
        if not filter:
            return copy.copy(self)
        if self.last_view is None or self.last_view[0] != filter:
            rows = torch.tensor(self.db.rows(filter), dtype=torch.long)
            self.last_view = filter, self.select_rows(rows)
        return self.last_view[1]

    def select_rows(self, rows: Tensor) -> Self:
        """Return a view of these rows, which are ascending."""
        view = copy.copy(self)
        view.rows, view.filtered = rows, True
        view._forget_view()
        return view

    def _forget_view(self) -> None:
        """Forget what was computed for the rows of the view."""
        self.last_view = None
        for name in ("_moments", "bitmap"):
            self.__dict__.pop(name, None)

    @cached_property
    def bitmap(self) -> npt.NDArray[np.uint8]:
        """The rows of the view as bits."""
        is_inside = np.zeros(len(self.matrix), bool)
        is_inside[self.rows.numpy()] = True
        return np.packbits(is_inside, bitorder="little")

    @property
    def is_approximate(self) -> bool:
        return self.approximate is not None and self.approximate.accepts(self)

    def nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Search approximately if such an index is open and the view is large, else exactly."""
        if self.approximate is not None and self.is_approximate:
            return self.approximate.nearest(self, queries, k)
        return self.exact(queries, k)

    def exact(self, queries: Tensor, k: int, first: int = 0) -> tuple[Tensor, Tensor]:
        """Search the rows from `first` on exactly; ties keep the lower row."""
        rows = self.rows[int(torch.searchsorted(self.rows, first)) :]
        return nearest_rows(queries, self.matrix, k, self.budget, rows)

    def scan(self, vectors: Tensor) -> tuple[Tensor, Tensor] | None:
        if self.is_approximate or 16 * len(vectors) * len(self) > self.budget:
            return None
        blocks = similarity_blocks(vectors.float(), self.matrix, self.rows, self.budget)
        similarities = [vectors.new_empty(len(vectors), 0), *(block for block, _ in blocks)]
        return torch.cat(similarities, 1), self.rows

    def vectors(self, rows: Tensor) -> Tensor:
        return self.matrix[rows].float()

    def words(self, rows: Tensor) -> Tensor | None:
        if not self.use_words or not self.word_ids.shape[1]:
            return None
        return self.word_ids[rows].long()

    def local(self, rows: Tensor) -> Tensor | None:
        k = self.description.local_vectors
        if not k:
            return None
        return self.local_rows[rows].float().unflatten(1, (k, -1))

    def find_texts(self, words: Sequence[str]) -> TextHits | None:
        if not self.db.texts.exists:
            return None
        hits = self.db.find_texts(words)
        if self.filtered:
            is_inside = torch.isin(hits.rows, self.rows)
            hits = hits._replace(rows=hits.rows[is_inside], places=hits.places[is_inside])
        return hits

    def entries(self, rows: Tensor) -> list[ImageEntry]:
        return self.db.entries(rows.tolist())

    def images(self) -> dict[str, IndexedImage]:
        return self.db.images()

    def sample(self, count: int) -> list[IndexedImage]:
        places = torch.linspace(0, max(len(self) - 1, 0), min(count, len(self)))
        rows = self.rows[places.round().long().unique()]
        return [IndexedImage(*pair) for pair in zip(rows.tolist(), self.entries(rows), strict=True)]

    def find_paths(self, paths: Sequence[str]) -> dict[str, IndexedImage]:
        return self.db.find_paths(paths)

    def sources(self) -> Iterator[tuple[str, str]]:
        return self.db.sources()

    def rows_with_digests(self, digests: Sequence[str]) -> dict[str, list[int]]:
        return self.db.rows_with_digests(digests)

    def distinct_values(self, column: str) -> list[str]:
        return sorted(self.db.distinct_values(column))

    def moments(self) -> Moments:
        return self._moments

    @cached_property
    def _moments(self) -> Moments:
        if not self.filtered:
            return current_sums(self.db, self.matrix)[0].moments()
        sums = MomentSums.zeros(self.dim)
        for rows in self.rows.split(COPY_ROWS):
            sums.add(self.vectors(rows))
        return sums.moments()

    def open_approximate(self) -> bool:
        self.approximate = read_approximate(self)
        self.last_view = None
        return self.approximate is not None

    def update_approximate(self, mode: str = "auto", texts: Tensor | None = None) -> str | None:
        return update_approximate(self, mode, texts)

    def writer(self) -> LocalWriter:
        return LocalWriter(self)


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
        with ExitStack() as on_error:
            on_error.callback(self._release)
            self.db = MetadataDb(self.folder, snapshot=False)
            if not self.db.texts.exists:
                self.db.upgrade()
            self._settle()
            self._delete_old_generations()
            # The store sees what others wrote before, without a snapshot: SQLite's log would grow
            # until the snapshot is released.
            self.store.snapshot = False
            self.store.refresh()
            on_error.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None or not issubclass(kind, IndexDamaged):
                self._store_sums()
        finally:
            self.db.close()
            self._release()
        self.store.refresh()

    def _release(self) -> None:
        self.lock.release()
        self.store.snapshot = True

    def put(
        self,
        entries: Sequence[ImageEntry],
        vectors: Tensor,
        words: Tensor | None = None,
        local: Tensor | None = None,
    ) -> None:
        lengths = vectors.float().norm(dim=1)
        if not bool(((lengths - 1).abs() < MAX_LENGTH_ERROR).all()):
            raise ValueError("vectors of an index must be finite and of length 1")
        positions = {entry.path: i for i, entry in enumerate(entries)}  # of equal paths the last
        places = list(positions.values())
        columns = {
            "vectors": vectors,
            "words": torch.empty(0) if words is None else words,
            "local": torch.empty(0) if local is None else local,
        }
        with self.db.transaction():
            count = int(self.db.state("count"))
            for name, dtype, width in self._files():
                rows = np.asarray(columns[name], dtype).reshape(len(entries), width)
                self._append(name, count, rows[places])
            self.db.remove(self.db.rows_of(positions))
            self.db.insert(count, [entries[i] for i in places])
            self.db.set_state(count=count + len(places))
        self.db.count = count + len(places)

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

    def _files(self) -> list[tuple[str, str, int]]:
        """Return name, type and width of each file of rows."""
        description = self.description
        files = [
            ("vectors", description.dtype, description.dim),
            ("words", "int32", description.words_per_image),
            ("local", "float16", description.local_width),
        ]
        return [(name, dtype, width) for name, dtype, width in files if width]

    def _append(self, name: str, count: int, values: Any) -> None:
        path = self.folder / f"{name}-{self.db.generation}.bin"
        path.touch()
        with open(path, "r+b") as file:
            file.seek(count * values.shape[1] * values.itemsize)  # after the last valid row
            file.truncate()
            file.write(values.tobytes())
            _flush(file)

    def _store_sums(self) -> None:
        """Store the moments, once per writer: they are megabytes."""
        self.store.refresh()
        sums, rows, number = current_sums(self.db, self.store.matrix)
        stored = self.db.state("sums_rows"), self.db.state("sums_gone")
        if rows and (rows, number) != stored:
            with self.db.transaction():
                self.db.set_state(sums=sums.to_bytes(), sums_rows=rows, sums_gone=number)

    def _settle(self) -> None:
        """Store the present paths of an index that was moved, and its present folder."""
        if self.db.relocation.moved:
            stored = read_description(self.folder)
            write_description(self.folder, stored.with_files(self.db.relocation.path))
        if self.db.relocation.moved or not self.db.state("home"):
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
    sums = MomentSums.zeros(matrix.shape[1])
    if stored := db.state("sums"):
        sums = MomentSums.from_bytes(stored)
    rows, number = int(db.state("sums_rows", 0)), int(db.state("sums_gone", 0))
    removed = db.removed(number)
    sums.add(matrix[rows : db.count])
    sums.add(matrix[torch.tensor([row for _, row in removed], dtype=torch.long)], -1)
    return sums, db.count, removed[-1][0] if removed else number


def write_description(folder: Path, description: IndexDescription) -> None:
    write_text(folder / "index.json", description.to_json())


def read_description(folder: Path) -> IndexDescription:
    try:
        description = IndexDescription.from_json((folder / "index.json").read_text("utf-8"))
    except (ValueError, TypeError, OSError) as error:
        raise damaged(folder, f"index.json: {error}") from None
    if description.format != IndexDescription.format:
        raise ValueError(
            f"{folder} has format {description.format} of a newer Cenote: update Cenote"
        )
    return description
