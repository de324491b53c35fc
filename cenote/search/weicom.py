"""Functions of the text's and the image's similarity: WeiCom [Dissertation Sec. 5.2] and simple ones.

The simple ones [Dissertation Sec. 4.4.2, 5.3.2] take one modality alone or combine both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..options import check_number
from .composition import (
    ComposedQuery,
    CompositionContext,
    Scorer,
    image_vectors,
    query_statistics,
    single,
    text_vectors,
)

WEIGHT = 0.5  # lambda, of the text; the paper's best are 0.3 for CLIP and 0.6 for RemoteCLIP
WEIGHT_LIMITS: dict[str, float] = {"least": 0, "most": 1}
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
    return [single(scorer.direction / 2) for scorer in added(queries, context)]


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


def weicom(
    queries: Sequence[ComposedQuery], context: CompositionContext, weight: float = WEIGHT
) -> list[Scorer]:
    """s = lambda Phi((s_t - mu_t) / sigma_t) + (1 - lambda) Phi((s_i - mu_i) / sigma_i).

    [Dissertation Eq. 5.2]
    """
    vectors, means, sigmas = query_statistics(queries, context)
    weights = torch.tensor([weight, 1 - weight], dtype=torch.double)
    # Its 500 nearest contain the true top 10; 500 of each modality alone would not.
    directions = ((weights / sigmas)[:, :, None] * vectors).sum(1).float()
    return [
        Scorer(v, -mu, partial(_combine, weight, sigma), direction, _why(weight, mu, sigma))
        for v, mu, sigma, direction in zip(vectors, means, sigmas, directions, strict=True)
    ]


def weicom_scores(image_similarities: Any, text_similarities: Any, weight: float = WEIGHT) -> Any:
    """Return scores (..., N) for similarities (..., N) to the whole database, in double precision.

    This form needs all similarities; `weicom` does not. Arrays give an array, tensors a tensor.
    """
    check_number("the weight of the text", weight, whole=False, **WEIGHT_LIMITS)
    s_t, s_i = (torch.as_tensor(s).double() for s in (text_similarities, image_similarities))
    scores = _weighted_phi(weight, torch.stack([_standardize(s_t), _standardize(s_i)]))
    return scores if isinstance(image_similarities, Tensor) else np.asarray(scores)


def _standardize(s: Tensor) -> Tensor:
    """Return (s - mu) / sigma with n - 1; 0 where all are equal."""
    if s.shape[-1] < 2:
        return torch.zeros_like(s)
    centred = s - s.mean(-1, keepdim=True)
    sigma = centred.square().sum(-1, keepdim=True).div(s.shape[-1] - 1).sqrt()
    constant = sigma <= 1e-6  # as in Moments.statistics: only rounding
    return centred / sigma.masked_fill(constant, 1)


def _combine(weight: float, sigma: Tensor, centred: Tensor) -> Tensor:
    """Return scores (N,) of similarities less their means (2, N)."""
    return _weighted_phi(weight, centred / sigma.to(centred.device)[:, None])


def _weighted_phi(weight: float, z: Tensor) -> Tensor:
    """Return (...,) of z-scores (2, ...), in double precision: near 1 float32 has no resolution."""
    phi: Tensor = torch.special.ndtr(z.double())
    return weight * phi[0] + (1 - weight) * phi[1]


def _why(weight: float, mu: Tensor, sigma: Tensor) -> dict[str, object]:
    statistics = zip(("text", "image"), mu.tolist(), sigma.tolist(), strict=True)
    return {"weight": weight} | {name: {"mean": m, "deviation": s} for name, m, s in statistics}
