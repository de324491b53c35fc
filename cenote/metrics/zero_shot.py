"""Whether what some classes teach foretells others: the zero-shot prediction study of GSP
[GSP Sec. 5.1].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..unit import unit
from .nearest import BUDGET
from .vectors import as_labels, as_vectors


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
    if not ridge > 0:
        raise ValueError(f"ridge must be above 0, got {ridge}")
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    z = as_vectors(histograms, "histograms")
    x = as_vectors(embeddings)
    y = as_labels(labels, x)
    if len(z) != len(x):
        raise ValueError(f"each image has a histogram and an embedding, got {len(z)} and {len(x)}")
    present, which = y.unique(return_inverse=True)
    train_count = len(present) // 2
    test_count = len(present) - train_count
    if train_count < 1 or test_count < 2:
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
        for k, (p, t) in enumerate(((foretold, true), (unit(foretold), unit(true)))):
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
    """(rows, n) -> (rows,): the place, from 1, of each row's own column, which is `first` for the
    first row.
    """
    places = torch.arange(near.shape[1], device=near.device)
    rows = places[first : first + len(near), None]
    true_value = near.gather(1, rows)
    return 1 + ((near > true_value) | ((near == true_value) & (places < rows))).sum(1)
