"""WeiCom (D 5.2): both similarities brought to the same scale, then weighed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..options import check_number
from .composition import ComposedQuery, Scorer
from .texts import image_vectors, text_vectors

if TYPE_CHECKING:
    from .methods import CompositionContext

WEIGHT = 0.5  # lambda, of the text; the paper's best are 0.3 for CLIP and 0.6 for RemoteCLIP


def weicom_scores(image_similarities: Any, text_similarities: Any, weight: float = WEIGHT) -> Any:
    """(..., N) similarities to all of the database -> (..., N) scores, in double: near 1, float32 has no room.

    The form with a full scan; a composer needs none. Arrays give an array, tensors a tensor.
    """
    check_weicom(weight)
    parts = [torch.as_tensor(s).double() for s in (text_similarities, image_similarities)]
    if parts[0].shape != parts[1].shape or not parts[0].ndim:
        shapes = " and ".join(str(tuple(part.shape)) for part in parts)
        raise ValueError(f"text and image similarities are to the same images, got {shapes}")
    z_t, z_i = (_standardised(part) for part in parts)
    scores = _curves(weight, torch.stack([z_t, z_i]))
    return scores if isinstance(image_similarities, Tensor) else np.asarray(scores)


def _standardised(s: Tensor) -> Tensor:
    """(s - mu) / sigma with n - 1; 0 where all are equal."""
    if s.shape[-1] < 2:
        return torch.zeros_like(s)
    around = s - s.mean(-1, keepdim=True)
    sigma = around.square().sum(-1, keepdim=True).div(s.shape[-1] - 1).sqrt()
    flat = sigma <= 1e-6  # as Moments.statistics: no more than rounding
    return around / torch.where(flat, torch.ones_like(sigma), sigma)


def weicom(
    queries: Sequence[ComposedQuery], context: CompositionContext, weight: float = WEIGHT
) -> list[Scorer]:
    """s = lambda Phi((s_t - mu_t) / sigma_t) + (1 - lambda) Phi((s_i - mu_i) / sigma_i) (5.2)."""
    t, y = text_vectors(context.model, queries), image_vectors(queries)
    moments = context.database.moments()
    (mu_t, sigma_t), (mu_i, sigma_i) = moments.statistics(t), moments.statistics(y)
    vectors, sigmas = (
        torch.stack([t, y], 1),
        torch.stack([sigma_t, sigma_i], 1),
    )  # (Q, 2, D), (Q, 2)
    means = torch.stack([mu_t, mu_i], 1)
    # Its nearest are the candidates: 500 hold the true top 10, where each modality's own 500 would not.
    directions = (weight * t / sigmas[:, :1] + (1 - weight) * y / sigmas[:, 1:]).float()
    return [
        Scorer(v, -mu, partial(_combined, weight, sigma), d, _why(weight, mu, sigma))
        for v, mu, sigma, d in zip(vectors, means, sigmas, directions, strict=True)
    ]


def _combined(weight: float, sigma: Tensor, around: Tensor) -> Tensor:
    """(2, N) similarities less their means -> (N,)."""
    return _curves(weight, around / sigma.to(around.device)[:, None])


def _curves(weight: float, z: Tensor) -> Tensor:
    """(2, ...) -> (...), in double."""
    phi: Tensor = torch.special.ndtr(z.double())
    return weight * phi[0] + (1 - weight) * phi[1]


def _why(weight: float, mu: Tensor, sigma: Tensor) -> dict[str, Any]:
    both = zip(("text", "image"), mu.tolist(), sigma.tolist(), strict=True)
    return {"weight": weight} | {name: {"mean": m, "deviation": s} for name, m, s in both}


def check_weicom(weight: float) -> None:
    check_number("the weight of the text", weight, least=0, most=1)
