"""Vectors on the unit sphere: alignment, uniformity, utilization [Dissertation Eq. 2.24],
and whether the histograms of some classes foretell others [GSP Sec. 5.1].
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..unit import unit as wide_unit
from .arrays import BLOCK, as_labels, as_vectors, unit
from .nearest import BUDGET


def alignment(embeddings: Any, labels: Any, power: float = 1) -> float:
    """Mean distance of pairs of one class (Wang and Isola: power 2). Lower: better clustered."""
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
    if getattr(training, "ndim", 0) == 2:
        training = [training]
    for vectors in training:
        x = as_vectors(vectors, "the training embeddings")
        for j in range(0, len(x), step):
            gallery_block = unit(x[j : j + step]).to(q.device)
            for i in range(0, len(q), step):
                close = (unit(q[i : i + step]) @ gallery_block.T).amax(1)
                nearest[i : i + step] = torch.maximum(nearest[i : i + step], close)
    return float((2 - 2 * nearest.double()).clamp(min=0).mean())  # |q - x|^2 = 2 - 2 q.x


def zero_shot_prediction(
    histograms: Any,
    embeddings: Any,
    labels: Any,
    ridge: float = 0.05,
    rounds: int = 1000,
    seed: int = 0,
    budget: int = BUDGET,
) -> dict[str, float]:
    """Shares, 0 to 1: by l2 and by cosine, how often a class is the nearest to its foretold mean,
    and MAP.

    A linear map from histograms (N, m) to embeddings (N, D), class by class their means, is fitted
    on one random half of the classes by ridge regression [GSP Problem P3] and foretells the means
    of the others, among which each looks for its own. With one to find, MAP is the mean of 1 /
    rank; ties keep the lower class. Means over `rounds` such halves; `chance` is
    what a guess would have, as accuracy and as MAP.
    """
    z = as_vectors(histograms, "histograms")
    x = as_vectors(embeddings)
    y = as_labels(labels, x)
    present, which = y.unique(return_inverse=True)
    train_count = len(present) // 2
    test_count = len(present) - train_count
    if len(present) < 3:
        raise ValueError(f"zero-shot prediction needs at least 3 classes, got {len(present)}")
    z = _means(z.to(x.device), which, len(present))  # (C, m)
    v = _means(x, which, len(present))  # (C, D)
    generator = torch.Generator().manual_seed(seed)
    step = max(1, budget // (8 * 4 * test_count))  # rows of similarities, and their comparisons
    hits, inverse = [0, 0], [0.0, 0.0]
    for _ in range(rounds):
        order = torch.randperm(len(present), generator=generator).to(z.device)
        train_classes, test_classes = order[:train_count], order[train_count:]
        linear_map = _ridge_map(z[train_classes], v[train_classes], ridge)
        foretold, true = z[test_classes] @ linear_map, v[test_classes]  # (asked, D)
        for k, (p, t) in enumerate(((foretold, true), (wide_unit(foretold), wide_unit(true)))):
            squares = t.square().sum(1) / 2  # the nearest to p has the largest p.t - |t|^2 / 2
            for i in range(0, test_count, step):
                ranks = _ranks(p[i : i + step] @ t.T - squares, i)
                hits[k] += int((ranks == 1).sum())
                inverse[k] += float(ranks.double().reciprocal().sum())
    total = rounds * test_count
    scores = dict[str, float]()
    for k, name in enumerate(("l2", "cosine")):
        scores |= {f"accuracy_{name}": hits[k] / total, f"map_{name}": inverse[k] / total}
    guess = float((1 / torch.arange(1, test_count + 1, dtype=torch.float64)).mean())
    return scores | {"chance_accuracy": 1 / test_count, "chance_map": guess}


def _ridge_map(z: Tensor, v: Tensor, ridge: float) -> Tensor:
    """(b, m), (b, D) -> (m, D), the map of [GSP Problem P3] by the smaller of its two systems."""
    eye = torch.eye(min(z.shape), dtype=z.dtype, device=z.device)
    if z.shape[1] < len(z):
        return torch.linalg.solve(z.T @ z + ridge * eye, z.T @ v)
    return z.T @ torch.linalg.solve(z @ z.T + ridge * eye, v)


def _means(values: Tensor, which: Tensor, classes: int) -> Tensor:
    """(N, D) -> (classes, D), in double precision."""
    total = torch.zeros(classes, values.shape[1], dtype=torch.float64, device=values.device)
    total.index_add_(0, which, values.double())
    return total / which.bincount(minlength=classes)[:, None]


def _ranks(near: Tensor, first: int) -> Tensor:
    """(rows, n) -> (rows,): the place, from 1, of each row's true column; `first` is row 0's."""
    places = torch.arange(near.shape[1], device=near.device)
    rows = places[first : first + len(near), None]
    true_value = near.gather(1, rows)
    return 1 + ((near > true_value) | ((near == true_value) & (places < rows))).sum(1)
