"""Simple compositions [Dissertation Sec. 4.4.2, 5.3.2]: one modality alone, or both combined."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .composition import (
    ComposedQuery,
    CompositionContext,
    Scorer,
    image_vectors,
    single,
    text_vectors,
)

# Deviations above the mean at which a product is linearized: where the best images are.
TANGENT_AT = 3.0


def text(queries: Sequence[ComposedQuery], context: CompositionContext) -> list[Scorer]:
    """s_t."""
    return [single(t) for t in text_vectors(context.model, queries)]


def image(queries: Sequence[ComposedQuery], context: CompositionContext) -> list[Scorer]:
    """s_i."""
    return [single(y) for y in image_vectors(queries)]


def added(queries: Sequence[ComposedQuery], context: CompositionContext) -> list[Scorer]:
    """s_t + s_i = (g(t) + f(y)) . x."""
    return [single(v) for v in image_vectors(queries) + text_vectors(context.model, queries)]


def average(queries: Sequence[ComposedQuery], context: CompositionContext) -> list[Scorer]:
    """(s_t + s_i) / 2 [Dissertation Eq. 5.1]: ranks like the sum."""
    sums = image_vectors(queries) + text_vectors(context.model, queries)
    return [single(v) for v in sums / 2]


def product(queries: Sequence[ComposedQuery], context: CompositionContext) -> list[Scorer]:
    """s_t s_i."""
    t, y = text_vectors(context.model, queries), image_vectors(queries)
    moments = context.database.moments()
    (mu_t, sigma_t), (mu_i, sigma_i) = moments.statistics(t), moments.statistics(y)
    s_t, s_i = (mu_t + TANGENT_AT * sigma_t).float(), (mu_i + TANGENT_AT * sigma_i).float()
    directions = s_i[:, None] * t + s_t[:, None] * y  # d(s_t s_i) = s_i ds_t + s_t ds_i
    zero = torch.zeros(2)
    return [
        Scorer(torch.stack(pair), zero, _multiply, direction, {})
        for *pair, direction in zip(t, y, directions, strict=True)
    ]


def _multiply(similarities: Tensor) -> Tensor:
    return similarities[0] * similarities[1]


def normalised_sum(queries: Sequence[ComposedQuery], context: CompositionContext) -> list[Scorer]:
    """(s_t - mu_t) / sigma_t + (s_i - mu_i) / sigma_i over the database: WeiCom without Phi."""
    t, y = text_vectors(context.model, queries), image_vectors(queries)
    moments = context.database.moments()
    (mu_t, sigma_t), (mu_i, sigma_i) = moments.statistics(t), moments.statistics(y)
    vectors = (t / sigma_t[:, None] + y / sigma_i[:, None]).float()
    offsets = -(mu_t / sigma_t + mu_i / sigma_i)
    return [single(v, offset=float(o)) for v, o in zip(vectors, offsets, strict=True)]
