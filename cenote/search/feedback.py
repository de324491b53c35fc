"""Learn from examples: move a query towards liked images and away from disliked ones."""

from __future__ import annotations

import torch
from torch import Tensor

from ..unit import unit
from .composition import Scorer, single
from .database import Moments

# Chosen on one half of the classes of three data sets, measured on the other half
# (benchmarks/feedback.py).
LIKE = 4.0  # weight of many liked images; L of them have L / (L + 2) of it
UNLIKE = 0.5  # weight of the disliked images beside that of the liked ones
UNLIKE_ALONE = 0.1  # beside the query: what is on the first page resembles what is searched for
QUERY = 0.5  # weight of the query
SHRINKAGE = 10.0  # variance that is added to every direction, in units of the mean variance


def refine(scorer: Scorer, like: Tensor, unlike: Tensor, moments: Moments) -> Scorer:
    """Return the scorer of one vector: QUERY q + w, w a linear discriminant of the examples.

    w = (C / (SHRINKAGE v) + I)^-1 (b (mean(like) - mu) - c (mean(unlike) - mu)), where mu and C are
    the mean and the covariance of the index and v is the mean variance, b = LIKE L / (L + 2) and
    c = UNLIKE b + UNLIKE_ALONE. q is the scorer's direction; it and the image vectors (L, D) and
    (U, D) have unit length. Directions in which all images differ count less; without C it is
    Rocchio's rule.
    """
    b = LIKE * len(like) / (len(like) + 2)
    examples = torch.zeros_like(moments.mean)
    if len(like):
        examples += b * (like.double().mean(0) - moments.mean)
    if len(unlike):
        c = UNLIKE * b + UNLIKE_ALONE
        examples -= c * (unlike.double().mean(0) - moments.mean)
    variance = moments.covariance.diagonal().mean().clamp(min=1e-12)
    whitening = moments.covariance / (SHRINKAGE * variance)
    whitening.diagonal().add_(1)
    w = torch.linalg.solve(whitening, examples).float()
    return single(QUERY * unit(scorer.direction) + w, scorer.why)
