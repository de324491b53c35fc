"""WeiCom is (5.2) with statistics over the whole database, and no scan changes that: values and rankings."""

import math

import numpy as np
import pytest
import torch

from cenote.search import ComposedQuery, MatrixDatabase, compose, weicom_scores
from cenote.search.database import Moments
from tests.toy_models import WordSumModel, image_vectors

from .rankings import assert_ranked


def phi(z: float) -> float:
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))


def slow(s_i: list[float], s_t: list[float], weight: float) -> list[float]:
    """From the equation, one image after the other."""
    n = len(s_i)

    def standardised(s: list[float]) -> list[float]:
        mu = sum(s) / n
        sigma = math.sqrt(sum((x - mu) ** 2 for x in s) / (n - 1))
        return [(x - mu) / sigma for x in s]

    z_i, z_t = standardised(s_i), standardised(s_t)
    return [weight * phi(b) + (1 - weight) * phi(a) for a, b in zip(z_i, z_t, strict=True)]


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.5, 1.0])
def test_scores_are_the_equation(weight: float) -> None:
    draw = np.random.default_rng(0)
    s_i, s_t = draw.normal(0.6, 0.1, 50), draw.normal(0.2, 0.02, 50)
    expected = slow(s_i.tolist(), s_t.tolist(), weight)
    found = weicom_scores(s_i, s_t, weight)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    several = weicom_scores(
        torch.tensor(np.stack([s_i, s_t])), torch.tensor(np.stack([s_t, s_i])), weight
    )
    np.testing.assert_allclose(several[0], expected, atol=1e-12)


def test_the_weight_is_the_text_s() -> None:
    s_i, s_t = [0.1, 0.2, 0.3], [0.3, 0.2, 0.1]
    assert weicom_scores(s_i, s_t, 1.0).argmax() == 0
    assert weicom_scores(s_i, s_t, 0.0).argmax() == 2


@pytest.mark.parametrize("weight", [0.3, 0.6])
def test_a_plan_without_a_scan_is_the_full_scan(weight: float) -> None:
    model, database = WordSumModel(), MatrixDatabase(image_vectors(400))
    image, text = image_vectors(1, seed=1)[0], "red dog"
    plan = compose("weicom", ComposedQuery(image, (text,)), database, model, weight=weight)
    x = database.matrix
    scan = weicom_scores(x @ image, x @ model.embed_texts([text])[0], weight)
    found = plan.scores(x)
    torch.testing.assert_close(found, scan, atol=1e-5, rtol=0)
    assert_ranked(found.argsort(descending=True, stable=True), scan)


def test_candidates_come_from_one_direction() -> None:
    """On clustered data 500 of 20,000 hold the true ten best."""
    draw = torch.Generator().manual_seed(0)
    centres = torch.nn.functional.normalize(torch.randn(100, 32, generator=draw), dim=1)
    x = centres.repeat(200, 1) + 0.1 * torch.randn(20000, 32, generator=draw)
    database, model = MatrixDatabase(torch.nn.functional.normalize(x, dim=1)), WordSumModel(32)
    plan = compose(
        "weicom", ComposedQuery(database.matrix[7], ("red dog",)), database, model, weight=0.4
    )
    s_t, s_i = plan.why["text"], plan.why["image"]
    t, y = model.embed_texts(["red dog"])[0], database.matrix[7]
    torch.testing.assert_close(
        plan.direction, 0.6 * y / s_i["deviation"] + 0.4 * t / s_t["deviation"]
    )
    best = plan.scores(database.matrix).topk(10).values
    candidates = database.nearest(plan.direction[None], 500)[1][0]
    torch.testing.assert_close(
        plan.scores(database.vectors(candidates)).topk(10).values, best, atol=1e-5, rtol=0
    )


def test_moments_are_the_statistics() -> None:
    x, q = image_vectors(300).double(), image_vectors(5, seed=2).double()
    mu, sigma = MatrixDatabase(x).moments().statistics(q)
    similarities = q @ x.T
    torch.testing.assert_close(mu, similarities.mean(1), atol=1e-12, rtol=0)
    torch.testing.assert_close(sigma, similarities.std(1), atol=1e-12, rtol=0)


def test_a_database_of_one_image_and_of_equal_images_have_finite_scores() -> None:
    model = WordSumModel()
    for x in (image_vectors(1), image_vectors(1).repeat(5, 1)):
        plan = compose(
            "weicom", ComposedQuery(image_vectors(1, seed=3)[0], ("dog",)), MatrixDatabase(x), model
        )
        torch.testing.assert_close(
            plan.scores(x), torch.full((len(x),), 0.5).double(), atol=1e-5, rtol=0
        )
    assert isinstance(MatrixDatabase(image_vectors(1)).moments(), Moments)


def test_wrong_weights_and_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"weight.*\b1\.5\b"):
        weicom_scores([0.1, 0.2], [0.1, 0.2], 1.5)
    with pytest.raises(RuntimeError, match="equal size"):  # of two and of three images
        weicom_scores([0.1, 0.2], [0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match="'lambda'"):
        compose(
            "weicom",
            ComposedQuery(image_vectors(1)[0], ("a",)),
            MatrixDatabase(image_vectors(4)),
            WordSumModel(),
            **{"lambda": 0.3},
        )
