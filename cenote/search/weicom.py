"""WeiCom [Dissertation Sec. 5.2]: both similarities on the same scale, then weighted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..options import check_number
from .composition import ComposedQuery, CompositionContext, Scorer, query_statistics

WEIGHT = 0.5  # lambda, of the text; the paper's best are 0.3 for CLIP and 0.6 for RemoteCLIP


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


def check_weicom(weight: float) -> None:
    check_number("the weight of the text", weight, least=0, most=1)


def weicom_scores(image_similarities: Any, text_similarities: Any, weight: float = WEIGHT) -> Any:
    """Return scores (..., N) for similarities (..., N) to the whole database, in double precision.

    This form needs all similarities; `weicom` does not. Arrays give an array, tensors a tensor.
    """
    check_weicom(weight)
    s_t, s_i = (torch.as_tensor(s).double() for s in (text_similarities, image_similarities))
    if s_t.shape != s_i.shape or not s_t.ndim:
        shapes = f"{tuple(s_t.shape)} and {tuple(s_i.shape)}"
        raise ValueError(f"text and image similarities must have the same shape, got {shapes}")
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


def _why(weight: float, mu: Tensor, sigma: Tensor) -> dict[str, Any]:
    statistics = zip(("text", "image"), mu.tolist(), sigma.tolist(), strict=True)
    return {"weight": weight} | {name: {"mean": m, "deviation": s} for name, m, s in statistics}
