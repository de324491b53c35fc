"""What a composition method asks of a database, and the simplest one: a matrix in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

BUDGET = 256 << 20  # bytes of a search, beside the matrix
BLOCK = 4096  # rows converted to double at a time
# Bytes of vectors compared at a time. Memory for larger blocks comes from the system each time, and its
# page faults take several times as long as the products.
COMPARED = 8 << 20


class Moments(NamedTuple):
    """Mean and covariance of the vectors of a database, in double precision."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    mean: Tensor  # (D,)
    covariance: Tensor  # (D, D), with n - 1

    def statistics(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and deviation (Q,) of the similarities of `queries` (Q, D) to all rows.

        mu = q . mean(x), sigma^2 = q^T Cov(x) q, so no row is read. Where all similarities are
        equal the deviation is 1, so that dividing by it gives 0.
        """
        q = queries.double()
        mu = q @ self.mean
        variance = ((q @ self.covariance) * q).sum(1)
        constant = variance <= 1e-12 * q.square().sum(1)  # what remains is rounding
        if self.count < 2:
            constant = torch.ones_like(constant)
        return mu, variance.masked_fill(constant, 1).sqrt()


@dataclass
class MomentSums:
    """Sums in double precision from which moments follow; rows can be added and subtracted."""

    count: int
    first: Tensor  # (D,)
    second: Tensor  # (D, D)

    @classmethod
    def zeros(cls, dim: int) -> MomentSums:
        double = torch.double
        return cls(0, torch.zeros(dim, dtype=double), torch.zeros(dim, dim, dtype=double))

    def add(self, vectors: Tensor, sign: int = 1) -> None:
        """Add rows (N, D), or subtract them with a sign of -1."""
        for block in vectors.split(BLOCK):
            x = block.double().cpu()
            self.count += sign * len(x)
            self.first += sign * x.sum(0)
            self.second.addmm_(x.T, x, alpha=sign)

    def merge(self, other: MomentSums) -> None:
        """Add the sums of other rows."""
        self.count += other.count
        self.first += other.first
        self.second += other.second

    def moments(self) -> Moments:
        if self.count < 1:
            raise ValueError("an empty index has no statistics: index some images first")
        mean = self.first / self.count
        scatter = self.second - self.count * torch.outer(mean, mean)
        return Moments(self.count, mean, scatter / max(self.count - 1, 1))

    def to_bytes(self) -> bytes:
        file = BytesIO()
        np.savez(file, count=self.count, first=self.first.numpy(), second=self.second.numpy())
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> MomentSums:
        with np.load(BytesIO(data), allow_pickle=False) as arrays:
            first, second = (torch.from_numpy(arrays[name]) for name in ("first", "second"))
            return cls(int(arrays["count"]), first, second)


class Database(Protocol):
    """Vectors of unit length with row numbers."""

    @property
    def dim(self) -> int: ...

    def __len__(self) -> int: ...

    def nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return dot products and rows (Q, k) for `queries` (Q, D), best first.

        Ties keep the lower row. A database of fewer than k rows returns all of them.
        """

    def vectors(self, rows: Tensor) -> Tensor:
        """Return the vectors (R, D) of `rows` (R,)."""

    def words(self, rows: Tensor) -> Tensor | None:
        """Return ids (R, n) of the nearest words of these rows, best first, if they are stored."""

    def moments(self) -> Moments: ...


class MatrixDatabase:
    """Rows of unit length (N, D) in memory, searched exactly.

    `words` (N, n) are the ids of each row's nearest words, if they are known.
    """

    def __init__(self, vectors: Tensor, words: Tensor | None = None) -> None:
        self.matrix, self.word_ids = vectors, words

    @property
    def dim(self) -> int:
        return self.matrix.shape[1]

    def __len__(self) -> int:
        return len(self.matrix)

    def nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return nearest_rows(queries, self.matrix, k)

    def vectors(self, rows: Tensor) -> Tensor:
        return self.matrix[rows]

    def words(self, rows: Tensor) -> Tensor | None:
        return None if self.word_ids is None else self.word_ids[rows]

    def moments(self) -> Moments:
        return self._moments

    @cached_property
    def _moments(self) -> Moments:
        sums = MomentSums.zeros(self.dim)
        sums.add(self.matrix)
        return sums.moments()


def nearest_rows(
    queries: Tensor, matrix: Tensor, k: int, budget: int = BUDGET, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return dot products and rows (Q, k) of `matrix` (N, D), best first, in `budget` bytes.

    Ties keep the lower row. Only `rows` are searched, if they are given, in ascending order.
    """
    if rows is None:
        rows = torch.arange(len(matrix), device=matrix.device)
    queries = queries.to(torch.promote_types(matrix.dtype, torch.float32))
    height = max(1, budget // (64 * matrix.shape[1]))  # queries at a time
    groups = []
    for group in queries.split(height):
        best = group.new_empty(len(group), 0), rows.new_empty(len(group), 0)
        for similarities, block in similarity_blocks(group, matrix, rows, budget):
            values, places = top_k(similarities, k)
            scores = torch.cat([best[0], values], 1)
            nearest = torch.cat([best[1], block[places]], 1)
            # Earlier blocks come first and have the lower rows: a stable sort keeps ties in order.
            scores, order = scores.sort(dim=1, descending=True, stable=True)
            best = scores[:, :k], nearest.gather(1, order)[:, :k]
        groups.append(best)
    all_scores, all_rows = zip(*groups, strict=True)
    return torch.cat(all_scores), torch.cat(all_rows)


def similarity_blocks(
    queries: Tensor, matrix: Tensor, rows: Tensor, budget: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield similarities (Q, n) with their rows (n,), ascending, within the budget.

    It holds their similarities, what is selected from them, and copies of the rows: one if they
    are gathered, and with several queries one that each thread of the product makes.
    """
    copies = 1 + torch.get_num_threads() * (len(queries) > 1)
    width = budget // (16 * len(queries) + 8 * matrix.shape[1] * copies)
    width = max(1, min(width, COMPARED // (4 * matrix.shape[1])))
    for block in rows.split(width):
        if not len(block):  # no rows at all
            return
        first, end = int(block[0]), int(block[-1]) + 1
        vectors = matrix[first:end]
        if end - first >= 2 * len(block):  # else a slice, not copied: five times as fast
            vectors = matrix.index_select(0, block)  # three times as fast as an index
        vectors = vectors.to(queries.dtype)
        if len(queries) == 1:  # twice as fast
            similarities = (vectors @ queries[0])[None]
        else:
            similarities = queries @ vectors.T
        if len(vectors) > len(block):
            similarities = similarities[:, block - first]
        yield similarities, block


def top_k(similarities: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return values and places (Q, k) of (Q, N), best first; ties keep the lower place.

    `torch.topk` leaves the order of ties open.
    """
    count = len(similarities)
    k = min(k, similarities.shape[1])
    if not k or not count:
        places = torch.empty(count, k, dtype=torch.long, device=similarities.device)
        return similarities[:, :k], places
    values, places = similarities.topk(k)
    ambiguous = ((similarities >= values[:, -1:]).sum(1) > k).nonzero()[:, 0]
    for i in ambiguous.tolist():  # ties at the k-th value
        ties = (similarities[i] >= values[i, -1]).nonzero()[:, 0]  # ascending
        places[i] = ties[similarities[i, ties].sort(descending=True, stable=True).indices[:k]]
    places = places.sort(dim=1).values
    values, order = similarities.gather(1, places).sort(dim=1, descending=True, stable=True)
    return values, places.gather(1, order)
