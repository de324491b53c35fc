"""A question, what is asked of a database, and what a composer makes of the two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class ComposedQuery(NamedTuple):
    """An image, texts, or both."""

    image: Tensor | None = None  # (D,) of unit length
    texts: tuple[str, ...] = ()  # the terms: one in the papers; of several the vectors are added
    weights: tuple[float, ...] | None = None  # one for each text, negative: not this; None: all 1
    text: Tensor | None = None  # (D,) of unit length: instead of what the model makes of `texts`
    inside: int | None = None  # the query's row where it is itself in the database


class Moments(NamedTuple):
    """The first two moments of a database, in double."""

    count: int  # type: ignore[assignment]  # a tuple's own `count` is of no use here
    mean: Tensor  # (D,)
    covariance: Tensor  # (D, D), with n - 1

    def statistics(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """(Q, D) -> mean and deviation (Q,) of the similarities to all of the database, without looking at it.

        mu = q . mean(x), sigma^2 = q^T Cov(x) q. Where all similarities are equal the deviation is 1, so that what is
        divided by it becomes 0.
        """
        q = queries.double()
        mu = q @ self.mean
        variance = ((q @ self.covariance) * q).sum(1)
        # A constant similarity leaves only rounding, of the size of its square.
        flat = (
            variance <= 1e-12 * q.square().sum(1)
            if self.count > 1
            else torch.ones_like(mu, dtype=torch.bool)
        )
        return mu, torch.where(flat, torch.ones_like(mu), variance).sqrt()


class Database(Protocol):
    """Rows of unit length, numbered from 0."""

    @property
    def dim(self) -> int: ...

    def __len__(self) -> int: ...

    def nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """(Q, D) -> dot products and rows (Q, k), best first, of equals the first row; k rows, or all there are."""

    def vectors(self, rows: Tensor) -> Tensor:
        """(R,) -> (R, D)."""

    def words(self, rows: Tensor) -> Tensor | None:
        """(R,) -> (R, n): the nearest words of these images, best first, where they were stored when indexing."""

    def moments(self) -> Moments: ...


def alone(similarities: Tensor) -> Tensor:
    """(1, N) -> (N,): the score is the similarity."""
    return similarities[0]


class Scorer(NamedTuple):
    """What to compare every image with: linear in the image, up to one small function."""

    vectors: Tensor  # (V, D): an image x has the similarities vectors @ x + offsets
    offsets: Tensor  # (V,)
    combine: Callable[[Tensor], Tensor]  # (V, N) -> (N,), the scores
    direction: Tensor  # (D,): its nearest are the candidates that `combine` ranks; with one vector the ranking is final
    why: Mapping[str, Any]  # for people and JSON: words and weights, statistics

    def scores(self, images: Tensor) -> Tensor:
        """(N, D) -> (N,)."""
        return self.of_similarities(self.vectors.to(images) @ images.T)

    def of_similarities(self, similarities: Tensor) -> Tensor:
        """(V, N) products of `vectors` and images -> (N,)."""
        return self.combine(
            similarities + self.offsets.to(similarities.device)[:, None]
        )  # double where offsets are


def single(vector: Tensor, why: Mapping[str, Any] | None = None, offset: float = 0.0) -> Scorer:
    """One vector: a nearest-neighbour search is all."""
    return Scorer(vector[None], vector.new_tensor([offset]), alone, vector, why or {})
