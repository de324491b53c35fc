"""What a composition method asks of a database, and the simplest one: a matrix in memory."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from io import BytesIO
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

BUDGET = 256 << 20  # bytes for similarities
BLOCK = 4096  # rows converted to double at a time


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


class MomentSums:
    """Sums in double precision from which moments follow; rows can be added and subtracted."""

    def __init__(self, dim: int) -> None:
        self.count = 0
        self.first = torch.zeros(dim, dtype=torch.double)
        self.second = torch.zeros(dim, dim, dtype=torch.double)

    def add(self, vectors: Tensor, sign: int = 1) -> None:
        """Add rows (N, D), or subtract them with a sign of -1."""
        for block in vectors.split(BLOCK):
            x = block.double()
            self.count += sign * len(x)
            self.first += sign * x.sum(0)
            self.second.addmm_(x.T, x, alpha=sign)

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
            sums = cls(len(arrays["first"]))
            sums.count = int(arrays["count"])
            sums.first = torch.from_numpy(arrays["first"])
            sums.second = torch.from_numpy(arrays["second"])
        return sums


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

    def __init__(self, vectors: Tensor, words: Tensor | None = None, budget: int = BUDGET) -> None:
        self.matrix, self.word_ids, self.budget = vectors, words, budget

    @property
    def dim(self) -> int:
        return self.matrix.shape[1]

    def __len__(self) -> int:
        return len(self.matrix)

    def nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return nearest_rows(queries, self.matrix, k, self.budget)

    def vectors(self, rows: Tensor) -> Tensor:
        return self.matrix[rows]

    def words(self, rows: Tensor) -> Tensor | None:
        return None if self.word_ids is None else self.word_ids[rows]

    def moments(self) -> Moments:
        return self._moments

    @cached_property
    def _moments(self) -> Moments:
        """Compute the mean first and then the scatter around it: nothing cancels."""
        count, dim = self.matrix.shape
        mean = self.matrix.new_zeros(dim, dtype=torch.double)
        for block in self.matrix.split(BLOCK):
            mean += block.double().sum(0)
        mean /= count
        scatter = self.matrix.new_zeros(dim, dim, dtype=torch.double)
        for block in self.matrix.split(BLOCK):
            centred = block.double() - mean
            scatter.addmm_(centred.T, centred)
        return Moments(count, mean, scatter / max(count - 1, 1))


def check_queries(queries: Tensor, dim: int) -> None:
    if queries.ndim != 2 or queries.shape[1] != dim:
        raise ValueError(f"queries must be (Q, {dim}), got {tuple(queries.shape)}")


def nearest_rows(
    queries: Tensor, vectors: Tensor, k: int, budget: int = BUDGET
) -> tuple[Tensor, Tensor]:
    """Return dot products and rows (Q, k) of `vectors` (N, D), best first, in `budget` bytes.

    Ties keep the lower row.
    """
    check_queries(queries, vectors.shape[1])
    k = min(k, len(vectors))
    width = max(min(len(vectors), budget // 8), 1)  # rows at a time: similarities and a copy
    height = max(budget // (8 * width), 1)  # queries at a time
    if not len(queries):
        return vectors.new_empty(0, k), torch.empty(0, k, dtype=torch.long, device=vectors.device)
    groups = []
    for group in queries.to(vectors.dtype).split(height):
        blocks = (
            (group @ vectors[start : start + width].T, start)
            for start in range(0, len(vectors), width)
        )
        groups.append(top_k_of_blocks(blocks, group, k))
    scores, rows = zip(*groups, strict=True)
    return torch.cat(scores), torch.cat(rows)


def top_k_of_blocks(
    blocks: Iterable[tuple[Tensor, int | Tensor]], queries: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """Return the k best scores and rows (Q, k) over blocks of similarities (Q, n).

    Each block comes with its first row, or with its rows (n,); blocks are in ascending order.
    """
    scores = queries.new_empty(len(queries), 0)
    rows = torch.empty(len(queries), 0, dtype=torch.long, device=queries.device)
    for similarities, block_rows in blocks:
        values, places = top_k(similarities, k)
        places = places + block_rows if isinstance(block_rows, int) else block_rows[places]
        # Earlier blocks come first and have the lower rows: a stable sort keeps ties in order.
        scores, order = torch.cat([scores, values], 1).sort(dim=1, descending=True, stable=True)
        rows = torch.cat([rows, places], 1).gather(1, order)[:, :k]
        scores = scores[:, :k]
    return scores, rows


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
