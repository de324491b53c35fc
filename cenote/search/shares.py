"""How much the image, the text and the examples of a query count in its scores."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .database import Moments


def input_shares(
    direction: Tensor, inputs: Mapping[str, Tensor], moments: Moments
) -> dict[str, float]:
    """Return the share of each input (D,) in the scores x . direction; they sum to one.

    The scores of the database are regressed on the similarities to the inputs; the shares are the
    standardized coefficients, negative ones counted as zero. For WeiCom, whose direction is
    lambda t / sigma_t + (1 - lambda) y / sigma_i, they are its weights lambda and 1 - lambda.
    Variances and covariances follow from the covariance of the vectors, so no image is read.
    {} if no input counts.
    """
    vectors = torch.stack([*inputs.values(), direction]).double()  # (I + 1, D)
    covariance = vectors @ moments.covariance @ vectors.T
    deviations = covariance.diagonal().clamp(min=1e-12).sqrt()
    correlation = covariance / torch.outer(deviations, deviations)
    solution = torch.linalg.pinv(correlation[:-1, :-1]) @ correlation[:-1, -1]
    coefficients = solution.clamp(min=0)
    total = float(coefficients.sum())
    if total <= 1e-6:
        return {}
    return dict(zip(inputs, (coefficients / total).tolist(), strict=True))
