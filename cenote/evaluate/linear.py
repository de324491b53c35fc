"""A linear probe: logistic regression on a frozen model's vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data import Dataset
from ..models import PooledModel
from .classify import ask

DECAYS = (
    1e1,
    1e0,
    1e-1,
    1e-2,
    1e-3,
    1e-4,
    1e-5,
)  # strongest first: each solution is where the next one starts


def linear_probe(
    model: PooledModel,
    train: Dataset,
    val: Dataset,
    test: Dataset,
    decays: Sequence[float] = DECAYS,
    **options: Any,
) -> dict[str, float]:
    """Accuracy in percent on `test` of the regression, learned on `train`, whose decay is best on `val`."""
    seen, chosen_on, judged = (
        ask(model, part.select(part.labels >= 0), **options) for part in (train, val, test)
    )
    deviation, mean = torch.std_mean(seen.vectors, 0)
    scale = torch.where(deviation > 0, deviation, 1)  # one decay must suit channels of every size
    x, x_val, x_test = ((part.vectors - mean) / scale for part in (seen, chosen_on, judged))
    classes = len(train.classes)
    weights = torch.zeros(classes, x.shape[1] + 1)
    best, kept, taken = -1.0, weights, decays[0]
    for decay in decays:
        weights = regress(x, seen.labels.clone(), classes, decay, weights)
        share = _accuracy(weights, x_val, chosen_on.labels)
        if share > best:
            best, kept, taken = share, weights, decay
    return {
        "linear": _accuracy(kept, x_test, judged.labels),
        "linear_val": best,
        "linear_decay": taken,
    }


def regress(
    x: Tensor, labels: Tensor, classes: int, decay: float, start: Tensor | None = None
) -> Tensor:
    """(classes, D + 1), the bias last: the minimum of cross-entropy + decay / 2 |W|^2, which is convex."""
    weights = torch.zeros(classes, x.shape[1] + 1) if start is None else start.clone()
    weights = weights.to(x).requires_grad_()
    solver = torch.optim.LBFGS(
        [weights], max_iter=200, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        solver.zero_grad()
        loss = (
            F.cross_entropy(_logits(weights, x), labels)
            + decay / 2 * weights[:, :-1].square().sum()
        )
        loss.backward()
        return loss

    solver.step(closure)
    return weights.detach()


def _logits(weights: Tensor, x: Tensor) -> Tensor:
    return torch.addmm(weights[:, -1], x, weights[:, :-1].T)


def _accuracy(weights: Tensor, x: Tensor, labels: Tensor) -> float:
    return 100 * float((_logits(weights, x).argmax(1) == labels).float().mean())
