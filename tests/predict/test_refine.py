"""A refined map follows the photograph's edges; its mean field is the one of the equation, written as loops."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from cenote.predict import boxes as module
from cenote.predict.boxes import BoxPrediction, pair_weights, predict_boxes, refine
from cenote.predict.maps import MapPredictor
from tests.synthetic import rectangles
from tests.toy_models import localizer


def noise(side: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(1).integers(0, 256, (side, side, 3), np.uint8))


def slow_mean_field(scores: np.ndarray, pixels: np.ndarray, threshold: float) -> np.ndarray:
    """Return (S, S) probabilities of object [Krähenbühl and Koltun 2011, Algorithm 1], pair by pair."""
    side = len(scores)
    places = [(y, x) for y in range(side) for x in range(side)]
    unary = {p: module.CRF_MAP_WEIGHT * (float(scores[p]) - threshold) for p in places}

    def kernel(p: tuple[int, int], q: tuple[int, int]) -> float:
        distance = sum(
            ((a - b) / side / module.CRF_POSITION) ** 2 for a, b in zip(p, q, strict=True)
        )
        colour = sum(
            ((a - b) / module.CRF_COLOUR) ** 2 for a, b in zip(pixels[p], pixels[q], strict=True)
        )
        return math.exp(-(distance + colour) / 2)

    field = {p: 1 / (1 + math.exp(-unary[p])) for p in places}
    for _ in range(module.CRF_STEPS):
        update = {}
        for p in places:
            weights = [kernel(p, q) for q in places]
            message = sum(w * (2 * field[q] - 1) for w, q in zip(weights, places, strict=True))
            log_odds = unary[p] + module.CRF_PAIR_WEIGHT * message / sum(weights)
            update[p] = 1 / (1 + math.exp(-log_odds))
        field = update
    return np.array([field[p] for p in places]).reshape(side, side)


@pytest.mark.parametrize("threshold", [0.2, 0.5])
def test_the_mean_field_is_that_of_the_equation(
    threshold: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CRF_SIDE", 7)
    scores = np.random.default_rng(0).random((7, 7), np.float32)
    photograph = noise(7)
    pixels = np.asarray(photograph, np.float64) / 255
    expected = np.interp(slow_mean_field(scores, pixels, threshold), [0, 0.5, 1], [0, threshold, 1])
    np.testing.assert_allclose(refine(scores, photograph, threshold), expected, atol=1e-4)


def test_a_step_edge_is_followed() -> None:
    """The map's smooth edge is at 0.6 of the width, the photograph's in the middle."""
    columns = (np.arange(96, dtype=np.float32) + 0.5) / 96
    score_map = np.tile(1 / (1 + np.exp((columns - 0.6) / 0.1)), (96, 1))
    pixels = np.zeros((120, 160, 3), np.uint8)
    pixels[:, :80] = (200, 120, 40)
    refined = refine(score_map, Image.fromarray(pixels), 0.5) > 0.5
    assert (score_map > 0.5)[:, :57].all() and refined[:, :47].all()
    assert not refined[:, 51:].any()


def test_a_photograph_without_edges_keeps_a_clear_object() -> None:
    y, x = np.mgrid[:96, :96]
    disk = (np.hypot(y - 40, x - 50) < 24).astype(np.float32)
    refined = refine(disk, Image.new("RGB", (96, 96), (90, 90, 90)), 0.5)
    assert ((refined > 0.5) == (disk > 0.5)).mean() > 0.98


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_constant_map_is_not_changed(value: float) -> None:
    score_map = np.full((32, 40), value, np.float32)
    assert np.array_equal(refine(score_map, noise(40), 0.5), score_map)


def test_weights_of_pairs_sum_to_one() -> None:
    weights = pair_weights(torch.rand(6, 6, 3, generator=torch.Generator().manual_seed(0)))
    assert weights.shape == (36, 36) and torch.allclose(weights.sum(1), torch.ones(36), atol=1e-5)


def test_boxes_of_refined_maps() -> None:
    dataset, predictor = rectangles(5), MapPredictor(localizer(), "cam", 64)
    plain = list(predict_boxes(predictor, dataset, 0.4))
    refined = list(predict_boxes(predictor, dataset, 0.4, refined=True))
    for before, after in zip(plain, refined, strict=True):
        assert isinstance(before, BoxPrediction) and isinstance(after, BoxPrediction)
        assert before.map.shape == after.map.shape and not np.allclose(before.map, after.map)
        assert (after.boxes >= 0).all() and (after.boxes[:, 2:] <= after.size).all()
