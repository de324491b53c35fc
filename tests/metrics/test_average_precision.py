"""Average precision is scikit-learn's on lists without ties, and the trapezoid is its
definition.
"""

import numpy as np
import pytest

from cenote.metrics.rankings import average_precision


def trapezoid(relevance: list[int]) -> float:
    """The area under precision against recall, straight between points: before the first place
    precision is 1.
    """
    total, hits, last = 0.0, 0, 1.0
    for place, right in enumerate(relevance, 1):
        before = last if place == 1 else hits / (place - 1)
        hits += right
        if right:
            total += (before + hits / place) / 2
    return total / max(sum(relevance), 1)


@pytest.mark.parametrize("seed", range(5))
def test_both_kinds_against_their_definitions(seed: int) -> None:
    peers = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(seed)
    scores, right = draw.permutation(60) / 60.0, draw.random(60) < 0.2
    right[seed] = True
    ranked = right[np.argsort(-scores)]
    assert average_precision(ranked) == pytest.approx(
        peers.average_precision_score(right, scores), abs=1e-12
    )
    assert average_precision(ranked.tolist(), "trapezoid") == pytest.approx(
        trapezoid(ranked.tolist()), abs=1e-12
    )


def test_one_right_image_at_place_two() -> None:
    assert average_precision([0, 1, 0]) == 0.5
    assert average_precision([0, 1, 0], kind="trapezoid") == 0.25


def test_nothing_to_find_is_zero_and_all_right_is_one() -> None:
    for kind in ("standard", "trapezoid"):
        assert average_precision([0, 0], kind) == average_precision([], kind) == 0
        assert average_precision([1, 1, 1], kind) == 1


def test_refusals() -> None:
    with pytest.raises(ValueError, match="'interpolated'"):
        average_precision([1], "interpolated")
