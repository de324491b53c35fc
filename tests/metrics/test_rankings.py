"""Landmarks by the revisited protocol, step by step; ranks by sorting."""

import numpy as np
import pytest

from cenote.metrics import (
    class_average_precisions,
    class_ranks,
    landmark_scores,
    mean_average_precision,
)
from cenote.metrics.rankings import of_places


def slow(order: list[int], right: set[int], junk: set[int], k: int) -> tuple[float, float]:
    """Walk down the list once; half the sum of precision before and after each hit, over the number
    to find.
    """
    seen = hits = 0
    area, flags = 0.0, []
    for image in order:
        if image in junk:
            continue
        before = 1.0 if seen == 0 else hits / seen
        seen += 1
        flags.append(image in right)
        if image in right:
            hits += 1
            area += (before + hits / seen) / 2
    last = max(i for i, flag in enumerate(flags) if flag) + 1
    depth = min(k, last)
    return area / len(right), sum(flags[:depth]) / depth


@pytest.mark.parametrize("seed", range(8))
def test_step_by_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth, orders = [], []
    for _ in range(6):
        images = rng.permutation(40)
        easy, hard, junk = rng.integers(0, 5), rng.integers(1, 6), rng.integers(0, 8)
        parts = np.split(images, np.cumsum([easy, hard, junk]))
        truth.append(
            dict(zip(("easy", "hard", "junk"), (part.tolist() for part in parts[:3]), strict=True))
        )
        orders.append(rng.permutation(40))
    scores = landmark_scores(np.array(orders), truth, ks=(1, 5, 10))
    settings = {
        "easy": ("easy", "junk hard"),
        "medium": ("easy hard", "junk"),
        "hard": ("hard", "junk easy"),
    }
    for name, (right, removed) in settings.items():
        for k in (1, 5, 10):
            expected = []
            for order, query in zip(orders, truth, strict=True):
                positives = {i for part in right.split() for i in query[part]}
                junk = {i for part in removed.split() for i in query[part]}
                if positives:
                    expected.append(slow(order.tolist(), positives, junk, k))
            assert scores[name].queries == len(expected)
            mean_ap, mean_precision = np.mean(expected, axis=0)
            assert scores[name].map == pytest.approx(mean_ap, abs=1e-12)
            assert scores[name].mp[k] == pytest.approx(mean_precision, abs=1e-12)


def test_by_hand() -> None:
    assert of_places([0, 1, 2], 3, "trapezoid") == 1
    assert of_places([1], 1, "trapezoid") == pytest.approx((0 / 1 + 1 / 2) / 2)
    assert of_places([0, 3], 2, "trapezoid") == pytest.approx((1 + (1 / 3 + 2 / 4) / 2) / 2)
    assert of_places([], 4, "trapezoid") == 0
    assert of_places([0], 2, "trapezoid") == 0.5  # the other one was never listed


def test_junk_is_as_if_it_had_never_been_there() -> None:
    truth = [{"easy": [2], "hard": [], "junk": [0, 1]}]
    scores = landmark_scores([[0, 1, 2, 3]], truth, ks=(1, 10))
    assert scores["easy"].map == 1 and scores["easy"].mp == {1: 1, 10: 1}
    assert scores["hard"].queries == 0 and np.isnan(scores["hard"].map)


def test_ranks_by_sorting() -> None:
    rng = np.random.default_rng(0)
    logits, targets = rng.integers(0, 5, (50, 9)), rng.integers(0, 9, 50)  # many equals
    expected = [
        sorted(range(9), key=lambda c: (-row[c], c)).index(t)
        for row, t in zip(logits, targets, strict=True)
    ]
    assert class_ranks(logits, targets).tolist() == expected


def slow_average_precision(scores: np.ndarray, right: np.ndarray) -> float:
    """Sum precision times the growth of recall over the thresholds, from the highest score on."""
    area = recall = 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        kept = scores >= threshold
        precision, reached = right[kept].mean(), right[kept].sum() / right.sum()
        area += precision * (reached - recall)
        recall = reached
    return area


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_average_precision_of_classes(levels: int) -> None:
    rng = np.random.default_rng(levels)
    scores = rng.integers(0, levels, (60, 7)) / levels
    targets = rng.random((60, 7)) < np.linspace(0, 1, 7)  # the first class has no image
    result = class_average_precisions(scores, targets)
    slow = [slow_average_precision(scores[:, c], targets[:, c]) for c in range(1, 7)]
    np.testing.assert_allclose(result[1:], slow, atol=1e-12)
    assert np.isnan(result[0])
    assert mean_average_precision(scores, targets) == pytest.approx(np.mean(slow))
    order = rng.permutation(60)
    np.testing.assert_allclose(class_average_precisions(scores[order], targets[order]), result)
    peer = pytest.importorskip("sklearn.metrics", reason="needs: pip install scikit-learn")
    theirs = peer.average_precision_score(targets[:, 1:], scores[:, 1:], average=None)
    np.testing.assert_allclose(result[1:], theirs, atol=1e-12)


def test_average_precision_of_equal_scores_is_the_share_of_right_images() -> None:
    targets = np.array([[1], [0], [0], [1], [0]])
    assert class_average_precisions(np.zeros((5, 1)), targets) == pytest.approx([0.4])
    with pytest.raises(ValueError, match="no image"):
        mean_average_precision(np.zeros((5, 1)), np.zeros((5, 1)))
    with pytest.raises(ValueError, match=r"\(5, 1\).*\(5, 2\)"):
        class_average_precisions(np.zeros((5, 1)), np.zeros((5, 2)))
