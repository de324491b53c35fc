"""Examples move a query: the linear discriminant, and how much each input counts."""

import numpy as np
import pytest
import torch
from torch import Tensor

from cenote.search.composition import ComposedQuery, encode_texts, single
from cenote.search.database import MatrixDatabase
from cenote.search.feedback import refine
from cenote.search.methods import compose
from cenote.search.shares import input_shares
from cenote.unit import unit
from tests.toy_models import ColourModel


def rows(count: int, dim: int = 6, seed: int = 0) -> Tensor:
    return unit(torch.randn(count, dim, generator=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize(("liked", "disliked"), [(3, 2), (1, 0), (0, 2)])
def test_the_discriminant_is_that_of_the_equation(liked: int, disliked: int) -> None:
    x, q, like, unlike = (
        rows(50),
        3 * rows(1, seed=1)[0],
        rows(liked, seed=2),
        rows(disliked, seed=3),
    )
    scorer = refine(single(q, {"k": 5}), like, unlike, MatrixDatabase(x).moments())
    mean, covariance = x.double().numpy().mean(0), np.cov(x.double().numpy().T)
    b = 4 * liked / (liked + 2)
    target = np.zeros(6)
    for vectors, weight in ((like, b), (unlike, -(0.5 * b + 0.1))):
        for vector in vectors.double().numpy():
            target += weight * (vector - mean) / len(vectors)
    scatter = covariance / (10 * np.trace(covariance) / 6) + np.eye(6)
    expected = 0.5 * q.numpy() / np.linalg.norm(q.numpy()) + np.linalg.inv(scatter) @ target
    torch.testing.assert_close(
        scorer.direction.double(), torch.from_numpy(expected), rtol=0, atol=1e-5
    )
    assert scorer.why == {"k": 5}


def test_identical_images_have_no_variance() -> None:
    x = rows(1).expand(4, -1)
    scorer = refine(single(x[0]), x[:1], x[:0], MatrixDatabase(x).moments())
    torch.testing.assert_close(unit(scorer.direction), x[0])


@pytest.mark.parametrize("weight", [0.2, 0.5, 1.0])
def test_shares_of_weicom_are_its_weights(weight: float) -> None:
    database, model = MatrixDatabase(rows(200)), ColourModel()
    query = ComposedQuery(rows(1, seed=5)[0], ("red",))
    scorer = compose("weicom", query, database, model, weight=weight)  # type: ignore[arg-type]
    inputs = {"image": query.image, "text": encode_texts(model, ["red"])[0]}  # type: ignore[arg-type]
    shares = input_shares(scorer.direction, inputs, database.moments())  # type: ignore[arg-type]
    assert shares == pytest.approx({"image": 1 - weight, "text": weight}, abs=1e-5)


def test_shares_are_a_regression_of_the_scores() -> None:
    x, direction = rows(200), rows(1, seed=8)[0]
    inputs = {"image": rows(1, seed=6)[0], "text": rows(1, seed=7)[0]}
    columns = np.stack([x.numpy() @ v.numpy() for v in inputs.values()], 1).astype(float)
    scores = x.double().numpy() @ direction.double().numpy()
    standard = (columns - columns.mean(0)) / columns.std(0)
    slopes = np.linalg.lstsq(standard, (scores - scores.mean()) / scores.std(), rcond=None)[0]
    positive = slopes.clip(min=0)
    assert positive.sum() > 0
    shares = input_shares(direction, inputs, MatrixDatabase(x).moments())
    assert list(shares.values()) == pytest.approx(positive / positive.sum(), abs=1e-5)
    opposite = {name: -vector for name, vector in {"image": direction}.items()}
    assert input_shares(direction, opposite, MatrixDatabase(x).moments()) == {}
