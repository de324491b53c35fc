"""Whether what some classes teach foretells others: the zero-shot prediction study of 002
(5.1 and 2.3).
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
    rank; of equally near classes the first is nearer. Means over `rounds` such halves; `chance` is
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
        raise ValueError(
            f"zero-shot prediction needs 3 classes at least, two of them to choose from, got {len(present)}"
        )
    z, v = (
        _means(z.to(x.device), which, len(present)),
        _means(x, which, len(present)),
    )  # (C, m), (C, D)
    generator = torch.Generator().manual_seed(seed)
    step = max(
        1, budget // (8 * 4 * test_count)
    )  # rows of `near` below, and what they are compared with
    hits, inverse = [0, 0], [0.0, 0.0]
    for _ in range(rounds):
        order = torch.randperm(len(present), generator=generator).to(z.device)
        train_classes, test_classes = order[:train_count], order[train_count:]
        foretold, true = (
            z[test_classes] @ _ridge_map(z[train_classes], v[train_classes], ridge),
            v[test_classes],
        )  # (asked, D)
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
    small = z.T @ z if z.shape[1] < len(z) else z @ z.T
    small = small + ridge * torch.eye(len(small), dtype=z.dtype, device=z.device)
    return (
        torch.linalg.solve(small, z.T @ v)
        if z.shape[1] < len(z)
        else z.T @ torch.linalg.solve(small, v)
    )


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
