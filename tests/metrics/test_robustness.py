"""Corruption errors are relative to AlexNet's; accuracies are over the classes that were asked
for.
"""

import numpy as np
import pytest

from cenote.metrics import background_gap, corruption_error
from cenote.metrics.robustness import ALEXNET_CLEAN_ERROR, ALEXNET_ERRORS


def test_alexnet_itself_is_one() -> None:
    score = corruption_error(ALEXNET_ERRORS, ALEXNET_CLEAN_ERROR)
    assert score.mce == pytest.approx(1) and score.relative_mce == pytest.approx(1)
    assert len(ALEXNET_ERRORS) == 15 and set(score.per_corruption) == set(ALEXNET_ERRORS)


def test_by_the_definition() -> None:
    rng = np.random.default_rng(0)
    errors = {name: rng.random(5).tolist() for name in ALEXNET_ERRORS}
    ratios, rises = [], []
    for name, alexnet in ALEXNET_ERRORS.items():
        ratios.append(sum(errors[name]) / (5 * alexnet))
        rises.append(sum(e - 0.3 for e in errors[name]) / (5 * (alexnet - 0.435)))
    score = corruption_error(errors, clean_error=0.3)
    assert score.mce == pytest.approx(sum(ratios) / 15) and score.relative_mce == pytest.approx(
        sum(rises) / 15
    )
    assert list(score.per_corruption.values()) == pytest.approx(ratios)
    assert corruption_error(errors).relative_mce is None


def test_severities_are_averaged_first() -> None:
    spread = {
        name: [error - 0.02, error - 0.01, error, error + 0.01, error + 0.02]
        for name, error in ALEXNET_ERRORS.items()
    }
    assert corruption_error(spread).mce == pytest.approx(1)


def test_all_fifteen_are_needed() -> None:
    with pytest.raises(ValueError, match=r"\brain\b.*\bsnow\b"):
        corruption_error(
            {("rain" if name == "snow" else name): error for name, error in ALEXNET_ERRORS.items()}
        )


def test_the_gap() -> None:
    assert background_gap({"original": 0.9, "mixed_same": 0.8, "mixed_rand": 0.7}) == pytest.approx(
        0.1
    )
