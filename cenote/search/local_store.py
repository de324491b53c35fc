"""The index in a folder: a memory-mapped matrix, SQLite beside it, exact search in bounded memory.

`vectors-G.bin` holds a row an image, `words-G.bin` the ids of its nearest words, `images.sqlite` everything else, and
the number of rows that count. Rows are only ever appended, before SQLite is told; what is removed stays in the matrix
until a writer compacts it into generation G + 1. So a process killed at any moment leaves at most rows that do not
count, which the next one overwrites, and a reader's rows stay what they were.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..data.files import write_atomically
from .composition import Moments
from .database import best
from .filters import Filter
from .metadata_db import MetadataDb
from .store import ImageEntry, IndexDamaged, IndexDescription, IndexedImage
from .sums import MomentSums

if TYPE_CHECKING:
    from .approximate import Approximate
    from .writer import Writing

BUDGET = (
    256 << 20
)  # bytes that a search takes beside the matrix, which is the system's to keep in memory
DTYPES = ("float32", "float16")
FEW = 4  # below one row in so many, the chosen are gathered; above it, all are compared and the others masked


class LocalStore:
    """An index as it was when it was opened; `refresh` looks again. `select` gives a view of some images."""

    def __init__(self, folder: Path, description: IndexDescription, budget: int = BUDGET) -> None:
        if budget < 1 << 20:
            raise ValueError(f"the budget is in bytes, at least {1 << 20}, got {budget}")
        self.folder, self.description, self.budget = folder, description, budget
        self.where, self.dim = str(folder), description.dim
        self.approximate: Approximate | None = None
        self.snapshot = True  # a writer's own index follows it, see `Writing`
        self.refresh()
        self.description = self.table.model_places.description(description)

    @classmethod
    def open(
        cls, folder: Path, description: IndexDescription | None = None, budget: int = BUDGET
    ) -> LocalStore:
        """With a description a folder that is not there, or empty, becomes an index."""
        if (folder / "index.json").is_file():
            return cls(folder, read_description(folder), budget)
        if description is None:
            what = "is no index" if folder.exists() else "is not there"
            raise ValueError(f"{folder} {what}: `cenote index PHOTOGRAPHS -o {folder}` makes one")
        if description.dtype not in DTYPES:
            raise ValueError(f"vectors are kept as {' or '.join(DTYPES)}, not {description.dtype}")
        if folder.exists() and any(
            not path.name.startswith((".", "images.sqlite")) for path in folder.iterdir()
        ):
            raise ValueError(f"{folder} holds other files: name a new folder for the index")
        with write_atomically(folder / "images.sqlite") as temporary:
            MetadataDb.create(temporary, folder)
        _write(folder, description)  # the last file: with it there is an index
        return cls(folder, description, budget)

    def describe(self, description: IndexDescription) -> None:
        """The same model or word list in another place."""
        _write(self.folder, description)
        self.description = description
        MetadataDb(self.folder, snapshot=False).settle_model(description)

    def beside(self) -> IndexDescription:
        """With the model and the word list that moved along, where others have come to their places."""
        return self.table.model_places.description(self.description, beside=True)

    def refresh(self) -> None:
        """See what was written since."""
        for attempt in range(5):
            self.table = MetadataDb(self.folder, self.snapshot)
            try:
                self._map()
                break
            except FileNotFoundError:  # compacted between the two
                self.table.close()
                if attempt == 4:
                    raise IndexDamaged(
                        f"{self.folder} is damaged (its vectors are gone): index the images again"
                    ) from None
        gone = {row for _, row in self.table.gone()}
        self.rows: Tensor | None = None  # those that count, ascending; None: all
        if gone:
            left = np.ones(self.table.count, bool)
            left[list(gone)] = False
            self.rows = torch.from_numpy(np.flatnonzero(left))
        self.filtered = False
        self._forget()
        if self.approximate is not None:
            self.open_approximate()

    def _forget(self) -> None:
        """What was worked out from other rows."""
        for name in ("counting", "_kept_moments"):
            self.__dict__.pop(name, None)

    def _map(self) -> None:
        n = int(self.description.words.get("n", 0))
        self.matrix = self._file("vectors", self.description.dtype, self.dim)
        self.word_ids = self._file("words", "int32", n) if n else None

    def _file(self, name: str, dtype: str, width: int) -> Tensor:
        rows, path = self.table.count, self.folder / f"{name}-{self.table.generation}.bin"
        if not rows:
            return torch.from_numpy(np.empty((0, width), dtype))
        wanted, there = rows * width * np.dtype(dtype).itemsize, path.stat().st_size
        if there < wanted:
            raise IndexDamaged(
                f"{path} is damaged ({there} of {wanted} bytes): index the images again, into a new folder"
            )
        # Copy on write, which nobody does: torch does not take a matrix that is read-only.
        return torch.from_numpy(np.memmap(path, dtype, "c", shape=(rows, width)))

    def __len__(self) -> int:
        return len(self.matrix) if self.rows is None else len(self.rows)

    def select(self, filter: Filter) -> LocalStore:
        view = copy.copy(self)
        view._forget()
        if filter:
            view.rows = torch.tensor(self.table.rows(filter), dtype=torch.long)
            view.filtered = True
        return view

    def nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Approximate where there is such an index and nothing is filtered, else exact."""
        self._check(queries)
        if self.approximate is not None and not self.filtered:
            return self.approximate.nearest(self, queries, k)
        return self.exact(queries, k)

    def exact(self, queries: Tensor, k: int, first: int = 0) -> tuple[Tensor, Tensor]:
        """Among the rows from `first` on; of equals the first."""
        k = min(k, len(self) if not first else int(self.counting[first:].sum()))
        groups = [
            self._group(part, k, first)
            for part in queries.float().split(self._height(len(queries)))
        ]
        if not groups:
            return torch.empty(0, k), torch.empty(0, k, dtype=torch.long)
        scores, rows = zip(*groups, strict=True)
        return torch.cat(scores), torch.cat(rows)

    def _group(self, queries: Tensor, k: int, first: int) -> tuple[Tensor, Tensor]:
        scores, rows = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.long)
        if not k:
            return scores, rows
        for similarity, places in self._similarities(queries, first):
            found, at = best(similarity, k)
            # What was found before comes first and has the smaller rows: a stable sort keeps equals in order.
            scores, order = torch.cat([scores, found], 1).sort(dim=1, descending=True, stable=True)
            at = at + places if isinstance(places, int) else places[at]
            rows = torch.cat([rows, at], 1).gather(1, order)[:, :k]
            scores = scores[:, :k]
        return scores, rows

    def _similarities(self, queries: Tensor, first: int) -> Iterator[tuple[Tensor, int | Tensor]]:
        """(Q, n) and the first row or the rows they belong to, in the budget; what does not count is at -inf."""
        if self.rows is not None and len(self.rows) * FEW < len(self.matrix):
            for part in self.rows[self.rows >= first].split(self._width(len(queries), copied=True)):
                yield self._product(queries, self.matrix[part]), part
            return
        counting = None if self.rows is None else self.counting
        width = self._width(len(queries), copied=self.matrix.dtype != torch.float32)
        for start in range(first, len(self.matrix), width):
            similarity = self._product(queries, self.matrix[start : start + width])
            if counting is not None:
                similarity.masked_fill_(~counting[start : start + width], -torch.inf)
            yield similarity, start

    @staticmethod
    def _product(queries: Tensor, block: Tensor) -> Tensor:
        block = block.float()
        return (
            (block @ queries[0])[None] if len(queries) == 1 else queries @ block.T
        )  # one query: half the time

    def _height(self, queries: int) -> int:
        return max(1, min(queries, self.budget // (64 * self.dim)))

    def _width(self, queries: int, copied: bool) -> int:
        """Rows at a time: their similarities, what is chosen from them, and the copies that are made of them: one where
        rows are gathered, and the product's own, which every thread makes when there are several queries."""
        copies = copied + (torch.get_num_threads() if queries > 1 else 0)
        return max(1, self.budget // (16 * queries + 8 * self.dim * copies))

    @cached_property
    def counting(self) -> Tensor:
        """(rows of the matrix,): which count."""
        mask = torch.ones(len(self.matrix), dtype=torch.bool)
        if self.rows is not None:
            mask = torch.zeros_like(mask)
            mask[self.rows] = True
        return mask

    def scan(self, vectors: Tensor) -> tuple[Tensor, Tensor] | None:
        self._check(vectors)
        if (self.approximate is not None and not self.filtered) or 16 * len(vectors) * len(
            self
        ) > self.budget:
            return None
        rows = torch.arange(len(self.matrix)) if self.rows is None else self.rows
        parts = list(self._similarities(vectors.float(), 0))
        if not parts:
            return torch.empty(len(vectors), 0), rows
        every = torch.cat([similarity for similarity, _ in parts], 1)
        return (every if every.shape[1] == len(rows) else every[:, rows]), rows

    def vectors(self, rows: Tensor) -> Tensor:
        return self.matrix[rows].float()

    def words(self, rows: Tensor) -> Tensor | None:
        return None if self.word_ids is None else self.word_ids[rows].long()

    def drop_words(self) -> None:
        self.word_ids = None

    def entries(self, rows: Tensor) -> list[ImageEntry]:
        return self.table.entries(rows.tolist())

    def images(self) -> dict[str, IndexedImage]:
        return self.table.images()

    def find(self, digest: str) -> list[int]:
        return self.table.find(digest)

    def distinct_values(self, column: str) -> list[str]:
        return sorted(self.table.distinct_values(column))

    def moments(self) -> Moments:
        return self._kept_moments

    @cached_property
    def _kept_moments(self) -> Moments:
        if self.filtered and self.rows is not None:
            sums = MomentSums(self.dim)
            for part in self.rows.split(self._width(1, copied=True)):
                sums.add(self.vectors(part))
            return sums.moments()
        return caught_up(self.table, self.matrix)[0].moments()

    def open_approximate(self) -> bool:
        """Search with faiss from here on, if there is such an index of these rows that is good enough."""
        from .approximate import read

        self.approximate = read(self)
        return self.approximate is not None

    def writer(self) -> Writing:
        """Takes the lock; to be used with `with`."""
        from .writer import Writing

        return Writing(self)

    def _check(self, queries: Tensor) -> None:
        if queries.ndim != 2 or queries.shape[1] != self.dim:
            raise ValueError(
                f"queries are (queries, {self.dim}) as {self.where} is, got {tuple(queries.shape)}"
            )


def caught_up(table: MetadataDb, matrix: Tensor) -> tuple[MomentSums, int, int]:
    """The kept sums with the rows that came and went since, the rows they hold, the last removal they know."""
    kept = table.state("sums")
    sums = MomentSums(matrix.shape[1]) if kept is None else MomentSums.unpacked(kept)
    rows, number = int(table.state("sums_rows", 0)), int(table.state("sums_gone", 0))
    left = table.gone(number)
    sums.add(matrix[rows : table.count])
    sums.add(matrix[torch.tensor([row for _, row in left], dtype=torch.long)], -1)
    return sums, table.count, left[-1][0] if left else number


def _write(folder: Path, description: IndexDescription) -> None:
    with write_atomically(folder / "index.json") as temporary:
        temporary.write_text(json.dumps(description.asdict(), indent=2) + "\n", encoding="utf-8")


def read_description(folder: Path) -> IndexDescription:
    try:
        found: dict[str, Any] = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        description = IndexDescription(**found)
        if description.format == IndexDescription.format:
            _check_description(description)
    except (ValueError, TypeError, OSError) as error:
        raise IndexDamaged(
            f"{folder} is damaged (index.json: {error}): index the images again, into a new folder"
        ) from None
    if description.format != IndexDescription.format:
        raise ValueError(
            f"{folder} is of a newer Cenote (format {description.format}): update Cenote"
        )
    return description


def _check_description(made: IndexDescription) -> None:
    if made.dtype not in DTYPES:
        raise ValueError(f"no vectors of {made.dtype!r}")
    if not isinstance(made.dim, int) or made.dim < 1:
        raise ValueError(f"no vectors of {made.dim!r} numbers")
    if not isinstance(made.words, dict) or not isinstance(made.words.get("n", 0), int):
        raise ValueError(f"no word list {made.words!r}")
