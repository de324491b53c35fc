"""The plain database: a matrix in memory, searched exactly."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from .composition import Moments

BUDGET = 256 << 20  # bytes for similarities


class MatrixDatabase:
    """Rows of unit length (N, D); `words` (N, n) are the ids of each image's nearest words, if they are known."""

    def __init__(self, vectors: Tensor, words: Tensor | None = None, budget: int = BUDGET) -> None:
        if vectors.ndim != 2 or not vectors.is_floating_point():
            raise ValueError(
                f"a database is (images, dimensions) of floats, got {tuple(vectors.shape)}"
            )
        if words is not None and (words.ndim != 2 or len(words) != len(vectors)):
            raise ValueError(
                f"words are (images, n) of {len(vectors)} images, got {tuple(words.shape)}"
            )
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
        return moments_of(self.matrix)


def nearest_rows(
    queries: Tensor, vectors: Tensor, k: int, budget: int = BUDGET
) -> tuple[Tensor, Tensor]:
    """(Q, D), (N, D) -> dot products and rows (Q, k), best first, of equals the first; in `budget` bytes."""
    if queries.ndim != 2 or queries.shape[1] != vectors.shape[1]:
        raise ValueError(
            f"queries are (queries, {vectors.shape[1]}) as the database is, got {tuple(queries.shape)}"
        )
    k = min(k, len(vectors))
    width = max(
        min(len(vectors), budget // 8), 1
    )  # rows at a time; similarities, and a mask or a copy beside them
    height = max(budget // (8 * width), 1)  # queries at a time
    groups = [
        _of_group(part, vectors, k, width) for part in queries.to(vectors.dtype).split(height)
    ]
    if not groups:
        return vectors.new_empty(0, k), torch.empty(0, k, dtype=torch.long, device=vectors.device)
    scores, rows = zip(*groups, strict=True)
    return torch.cat(scores), torch.cat(rows)


def _of_group(queries: Tensor, vectors: Tensor, k: int, width: int) -> tuple[Tensor, Tensor]:
    scores = vectors.new_empty(len(queries), 0)
    rows = torch.empty(len(queries), 0, dtype=torch.long, device=vectors.device)
    for start in range(0, len(vectors), width):
        found, places = best(queries @ vectors[start : start + width].T, k)
        # What was found before comes first and has the smaller rows: a stable sort keeps equals in order.
        scores, order = torch.cat([scores, found], 1).sort(dim=1, descending=True, stable=True)
        rows = torch.cat([rows, places + start], 1).gather(1, order)[:, :k]
        scores = scores[:, :k]
    return scores, rows


def best(similarities: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(Q, N) -> values and places (Q, k), best first, of equals the first: topk leaves those open."""
    k = min(k, similarities.shape[1])
    if not k or not len(similarities):
        return similarities[:, :k], torch.empty(
            len(similarities), k, dtype=torch.long, device=similarities.device
        )
    values, places = similarities.topk(k)
    open_ends = ((similarities >= values[:, -1:]).sum(1) > k).nonzero()[:, 0]
    for i in open_ends.tolist():  # equals stand on both sides of the last place
        some = (similarities[i] >= values[i, -1]).nonzero()[:, 0]  # ascending
        places[i] = some[similarities[i, some].sort(descending=True, stable=True).indices[:k]]
    places = places.sort(dim=1).values
    values, order = similarities.gather(1, places).sort(dim=1, descending=True, stable=True)
    return values, places.gather(1, order)


def moments_of(vectors: Tensor, block: int = 8192) -> Moments:
    """Mean first, then what is around it: nothing cancels."""
    count, dim = vectors.shape
    if not count:
        raise ValueError("an empty database has no statistics: index some images first")
    mean = sum(
        (part.double().sum(0) for part in vectors.split(block)),
        vectors.new_zeros(dim, dtype=torch.double),
    )
    mean = mean / count
    second = vectors.new_zeros(dim, dim, dtype=torch.double)
    for part in vectors.split(block):
        around = part.double() - mean
        second.addmm_(around.T, around)
    return Moments(count, mean, second / max(count - 1, 1))
