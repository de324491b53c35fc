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
    query_statistics,
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
    vectors, means, deviations = query_statistics(queries, context)
    tangent = (means + TANGENT_AT * deviations).float()  # (Q, 2)
    # d(s_t s_i) = s_i ds_t + s_t ds_i
    directions = (tangent.flip(1)[:, :, None] * vectors).sum(1)
    pairs, zero = zip(vectors, directions, strict=True), torch.zeros(2)
    return [Scorer(pair, zero, _multiply, direction, {}) for pair, direction in pairs]


def _multiply(similarities: Tensor) -> Tensor:
    return similarities[0] * similarities[1]


def normalised_sum(queries: Sequence[ComposedQuery], context: CompositionContext) -> list[Scorer]:
    """(s_t - mu_t) / sigma_t + (s_i - mu_i) / sigma_i over the database: WeiCom without Phi."""
    vectors, means, deviations = query_statistics(queries, context)
    sums = (vectors / deviations[:, :, None]).sum(1).float()
    offsets = -(means / deviations).sum(1)
    return [single(v, offset=float(o)) for v, o in zip(sums, offsets, strict=True)]
