"""Alignment, uniformity and utilization are means over pairs, counted in double loops."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from cenote.metrics import alignment, uniformity, utilization

SMALL = 1 << 12  # bytes: many blocks


@pytest.fixture(params=[SMALL, 1 << 28])
def budget(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cenote.metrics.embedding.BUDGET", request.param)


def points(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))


def apart(x: Tensor, y: Tensor) -> float:
    """Squared distance on the sphere."""
    x, y = x.double() / x.double().norm(), y.double() / y.double().norm()
    return float((x - y).square().sum())


@pytest.mark.parametrize("power", [1, 2])
def test_alignment(budget: None, power: int) -> None:
    x, labels = points(70), torch.randint(0, 9, (70,), generator=torch.Generator().manual_seed(1))
    pairs = [
        apart(x[i], x[j]) ** (power / 2)
        for i in range(70)
        for j in range(i)
        if labels[i] == labels[j]
    ]
    assert alignment(x, labels, power) == pytest.approx(np.mean(pairs), rel=1e-6)


def test_alignment_is_the_mean_distance() -> None:
    assert alignment(torch.eye(2), [0, 0]) == pytest.approx(2**0.5)


def test_alignment_of_very_close_vectors() -> None:
    close = torch.tensor([[1.0, 0], [1, 1e-5]])
    assert alignment(close, [3, 3], power=1) == pytest.approx(
        1e-5, rel=1e-3
    )  # a product would say 0


def test_uniformity(budget: None) -> None:
    x = points(50)
    pairs = [math.exp(-2 * apart(x[i], x[j])) for i in range(50) for j in range(i)]
    assert uniformity(x) == pytest.approx(math.log(np.mean(pairs)), abs=1e-5)
    assert uniformity(torch.ones(5, 3)) == pytest.approx(0, abs=1e-5)


def test_utilization(budget: None) -> None:
    queries, training = points(20, 1), points(45, 2)
    slow = np.mean([min(apart(q, x) for x in training) for q in queries])
    assert utilization(queries, training) == pytest.approx(slow, abs=1e-6)
    assert utilization(queries.numpy(), training.numpy()) == pytest.approx(slow, abs=1e-6)
    parts = (training[i : i + 7] for i in range(0, 45, 7))
    assert utilization(queries, parts) == pytest.approx(
        slow, abs=1e-6
    )  # mixed examples as they come
    assert (
        utilization(queries, [training, points(30, 3)]) <= slow
        and utilization(queries, queries) < 1e-5
    )


def test_wrong_input_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"3x6\b.*\b2x2\b"):
        utilization(points(3), torch.ones(2, 2))
    with pytest.raises(ValueError, match=r"\brow 1\b"):
        uniformity([[1.0, 2], [float("inf"), 1]])
