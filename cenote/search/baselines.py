"""Simple compositions (D 4.4.2, 5.3.2): one modality alone, or both similarities put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .composition import ComposedQuery, Scorer, single
from .texts import image_vectors, text_vectors

if TYPE_CHECKING:
    from .methods import CompositionContext

ABOVE = (
    3.0  # deviations above the mean: where the best images are, there products are made straight
)


def text(queries: Sequence[ComposedQuery], context: CompositionContext) -> list[Scorer]:
    """s_t."""
    return [single(t) for t in text_vectors(context.model, queries)]


def image(queries: Sequence[ComposedQuery], context: CompositionContext) -> list[Scorer]:
    """s_i."""
    return [single(y) for y in image_vectors(queries)]


def added(queries: Sequence[ComposedQuery], context: CompositionContext) -> list[Scorer]:
    """s_t + s_i = (g(t) + f(y)) . x."""
    both = image_vectors(queries) + text_vectors(context.model, queries)
    return [single(vector) for vector in both]


def average(queries: Sequence[ComposedQuery], context: CompositionContext) -> list[Scorer]:
    """(s_t + s_i) / 2 (5.1): the ranking of the sum."""
    both = image_vectors(queries) + text_vectors(context.model, queries)
    return [single(vector) for vector in both / 2]


def product(queries: Sequence[ComposedQuery], context: CompositionContext) -> list[Scorer]:
    """s_t s_i."""
    t, y = text_vectors(context.model, queries), image_vectors(queries)
    moments = context.database.moments()
    (mu_t, sigma_t), (mu_i, sigma_i) = moments.statistics(t), moments.statistics(y)
    at_t, at_i = (mu_t + ABOVE * sigma_t).float(), (mu_i + ABOVE * sigma_i).float()
    directions = at_i[:, None] * t + at_t[:, None] * y  # d(s_t s_i) = s_i ds_t + s_t ds_i
    zero = torch.zeros(2)
    return [
        Scorer(torch.stack(pair), zero, _times, d, {})
        for *pair, d in zip(t, y, directions, strict=True)
    ]


def _times(similarities: Tensor) -> Tensor:
    return similarities[0] * similarities[1]


def normalised_sum(queries: Sequence[ComposedQuery], context: CompositionContext) -> list[Scorer]:
    """(s_t - mu_t) / sigma_t + (s_i - mu_i) / sigma_i, over the database: WeiCom's directions without its curve."""
    t, y = text_vectors(context.model, queries), image_vectors(queries)
    moments = context.database.moments()
    (mu_t, sigma_t), (mu_i, sigma_i) = moments.statistics(t), moments.statistics(y)
    vectors = (t / sigma_t[:, None] + y / sigma_i[:, None]).float()
    offsets = -(mu_t / sigma_t + mu_i / sigma_i)
    return [
        single(vector, offset=float(offset))
        for vector, offset in zip(vectors, offsets, strict=True)
    ]
