"""Intervals are as wide as theory says: at hand, image by image, and of paired differences."""

import numpy as np
import pytest

from cenote.metrics import bootstrap_interval
from cenote.metrics.intervals import Resamples, behind_best, percentiles, wilson_interval


def test_as_wide_as_the_normal_interval() -> None:
    values = np.random.default_rng(0).normal(3, 2, 400)
    low, high = bootstrap_interval(values, resamples=2000)
    half = 1.96 * values.std() / np.sqrt(400)
    assert low == pytest.approx(values.mean() - half, abs=0.03) and high == pytest.approx(
        values.mean() + half, abs=0.03
    )
    assert bootstrap_interval(values, resamples=2000) == (low, high)  # the seed decides
    narrow = bootstrap_interval(values, level=0.5)
    assert low < narrow[0] < narrow[1] < high


def test_image_by_image_gives_the_same_interval() -> None:
    values = (np.random.default_rng(1).random(500) < 0.3).astype(float)
    resamples = Resamples((), 3000)
    for chunk in np.split(values, 10):
        resamples.add(chunk, map(str, range(len(chunk))))
    assert percentiles(resamples.means(), 0.95) == pytest.approx(
        bootstrap_interval(values, resamples=3000), abs=0.006
    )


def test_rows_of_one_image_are_drawn_together() -> None:
    values = (np.random.default_rng(1).random(200) < 0.3).astype(float)
    once, thrice = Resamples((), 3000), Resamples((), 3000)
    once.add(values, map(str, range(200)))
    rows, names = np.repeat(values, 3), np.repeat(np.arange(200), 3).astype(str)
    for part in (slice(0, 301), slice(301, 600)):  # an image may be in two batches
        thrice.add(rows[part], names[part])
    assert percentiles(thrice.means(), 0.95) == pytest.approx(
        percentiles(once.means(), 0.95), abs=0.01
    )


def test_wilsons_interval_at_the_ends_and_in_the_middle() -> None:
    low, high = wilson_interval(1.0, 90)
    assert low == pytest.approx(0.959, abs=5e-4) and high == pytest.approx(1.0)
    assert wilson_interval(0.0, 90)[0] == pytest.approx(0.0)
    low, high = wilson_interval(0.5, 10_000)  # as share ± 1.96 standard errors
    assert (low, high) == pytest.approx((0.4902, 0.5098), abs=1e-4)


def simulated(
    rng: np.random.Generator, candidates: int, lead: float, images: int = 400, seeds: int = 3
) -> np.ndarray:
    """Right answers (candidates, seeds, images); images, pools and seeds are hard in their way."""
    difficulty = rng.normal(1.2, 2, (1, 1, images))
    of_pool = rng.normal(0, 1, (candidates, 1, images))
    of_seed = rng.normal(0, 0.5, (candidates, seeds, images))
    of_run = rng.normal(0, 0.1, (candidates, seeds, 1))
    better = lead * (np.arange(candidates) == 0)[:, None, None]
    return (difficulty + of_pool + of_seed + of_run + better > 0).astype(float)


@pytest.mark.parametrize("candidates", [2, 11])
def test_equal_candidates_are_tied_on_other_images_and_seeds(candidates: int) -> None:
    rng = np.random.default_rng(0)
    tied = []
    for _ in range(200):
        behind, margin = behind_best(simulated(rng, candidates, 0.0))
        tied.append((behind <= margin).all())
    assert np.mean(tied) > 0.9  # 0.95 is meant


def test_a_better_candidate_is_recognised() -> None:
    rng = np.random.default_rng(0)
    recognised, leads = [], []
    for _ in range(100):
        scores = simulated(rng, 2, 0.4, images=1500)
        behind, margin = behind_best(scores)
        recognised.append(behind[1] > margin[1])
        leads.append(behind[1])
    assert np.mean(leads) < 0.07  # a few points
    assert np.mean(recognised) > 0.8


def test_few_differing_images_are_a_tie() -> None:
    scores = np.ones((2, 1, 50))
    scores[1, 0, :3] = 0
    behind, margin = behind_best(scores)
    assert behind[1] == pytest.approx(3 / 50) and margin[1] > behind[1]
    scores[1, 0, :9] = 0
    behind, margin = behind_best(scores)
    assert margin[1] < behind[1] and behind[0] == 0
    assert behind_best(scores[:1])[1].tolist() == [0.0]
