"""Distribution of vectors on the unit sphere: alignment, uniformity (Wang and Isola, 2020), utilization
[Dissertation Eq. 2.24].
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from .nearest import BUDGET
from .vectors import BLOCK, as_labels, as_vectors, unit


def alignment(embeddings: Any, labels: Any, power: float = 1) -> float:
    """Mean over pairs of one class of their distance, as in the dissertation (Wang and Isola: power
    2). Lower is better clustered.
    """
    vectors = as_vectors(embeddings)
    y, order = as_labels(labels, vectors).sort(stable=True)
    ends = torch.searchsorted(y, y, right=True)  # where each row's class ends
    pairs, total = 0, 0.0
    step = max(1, min(BLOCK, BUDGET // (16 * max(len(vectors), 1))))
    for i in range(0, len(y), step):
        stop = int(ends[min(i + step, len(y)) - 1])
        x, positives = unit(vectors[order[i : i + step]]), unit(vectors[order[i:stop]])
        same = (y[i : i + step, None] == y[None, i:stop]).triu(1)  # each pair once
        # Differences rather than products: of close vectors a product leaves nothing.
        apart = torch.cdist(x, positives, compute_mode="donot_use_mm_for_euclid_dist")[same]
        pairs += len(apart)
        total += float(apart.double().pow(power).sum())
    if not pairs:
        raise ValueError(f"alignment needs two vectors of one class, got none in {len(vectors)}")
    return total / pairs


def uniformity(embeddings: Any) -> float:
    """log of the mean over all pairs of exp(-2 |x - y|^2). Lower is more evenly spread."""
    vectors = as_vectors(embeddings)
    n = len(vectors)
    if n < 2:
        raise ValueError(f"uniformity is a mean over pairs of vectors, got {n}")
    step = min(BLOCK, math.isqrt(BUDGET // 8))
    logs = []
    for i in range(0, n, step):
        x = unit(vectors[i : i + step])
        for j in range(i, n, step):
            cosines = x @ unit(vectors[j : j + step]).T
            potential = cosines.sub_(1).mul_(4)  # -2 |x - y|^2 of vectors of length 1
            if i == j:
                lower = torch.ones_like(potential, dtype=torch.bool).tril_()
                potential.masked_fill_(lower, -torch.inf)  # each pair once
            logs.append(torch.logsumexp(potential.flatten(), 0).double())
    return float(torch.logsumexp(torch.stack(logs), 0)) - math.log(n * (n - 1) / 2)


def utilization(queries: Any, training: Any | Iterable[Any]) -> float:
    """Mean over queries of the squared distance to the nearest training vector, clean or mixed
    [Dissertation Eq. 2.24].

    `training` is (N, D), or several such one after the other: mixed examples of many epochs need
    not exist at once.
    """
    q = as_vectors(queries, "the queries' embeddings")
    nearest = torch.full((len(q),), -torch.inf, device=q.device)
    step = min(BLOCK, math.isqrt(BUDGET // 4))
    for vectors in [training] if getattr(training, "ndim", 0) == 2 else training:
        x = as_vectors(vectors, "the training embeddings")
        for j in range(0, len(x), step):
            gallery_block = unit(x[j : j + step]).to(q.device)
            for i in range(0, len(q), step):
                close = (unit(q[i : i + step]) @ gallery_block.T).amax(1)
                nearest[i : i + step] = torch.maximum(nearest[i : i + step], close)
    if not len(q) or torch.isinf(nearest).any():
        raise ValueError("utilization needs queries and training vectors, and got none")
    return float((2 - 2 * nearest.double()).clamp(min=0).mean())  # |q - x|^2 = 2 - 2 q.x
