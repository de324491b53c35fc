"""Weighted nearest neighbours against a loop."""

import math

import pytest
import torch

from cenote.metrics.retrieval import knn_accuracy


def slow(memory, known, queries, labels, k, temperature):  # type: ignore[no-untyped-def]
    right = 0
    for query, label in zip(queries, labels, strict=True):
        cosines = [float(query @ m / query.norm() / m.norm()) for m in memory]
        nearest = sorted(range(len(memory)), key=lambda i: -cosines[i])[:k]
        votes = [0.0] * 10
        for i in nearest:
            votes[int(known[i])] += math.exp(cosines[i] / temperature)
        right += votes.index(max(votes)) == int(label)
    return right / len(queries)


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_as_a_loop_would_vote(temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cenote.metrics.retrieval.CHUNK", 7)
    torch.manual_seed(0)
    memory, queries = torch.randn(60, 8), torch.randn(33, 8)
    known, labels = torch.randint(0, 4, (60,)), torch.randint(0, 4, (33,))
    accuracies = knn_accuracy(memory, known, queries, labels, (1, 10, 20), temperature)
    # The k-th and the next similarity differ by 1e-5 at least, the votes by 1e-3: rounding does not
    # decide.
    assert accuracies == {
        k: slow(memory, known, queries, labels, k, temperature) for k in (1, 10, 20)
    }


def test_more_neighbours_than_there_are() -> None:
    memory = torch.eye(3)
    assert knn_accuracy(memory, torch.arange(3), memory, torch.arange(3), (20,)) == {20: 1.0}
