"""Each baseline is its formula; the plain database finds what a full sort finds; bad questions are refused."""

from typing import Any

import pytest
import torch
from torch import Tensor

from cenote.search import METHODS, ComposedQuery, MatrixDatabase, compose, compose_all
from cenote.search.composition import text_vectors
from cenote.search.database import nearest_rows, top_k
from tests.toy_models import WordSumModel, image_vectors

from .rankings import assert_ranked


def formula(method: str, s_t: Tensor, s_i: Tensor) -> Tensor:
    return {
        "text": lambda: s_t,
        "image": lambda: s_i,
        "sum": lambda: s_t + s_i,
        "average": lambda: (s_t + s_i) / 2,
        "product": lambda: s_t * s_i,
        "normalised-sum": lambda: (s_t - s_t.mean()) / s_t.std() + (s_i - s_i.mean()) / s_i.std(),
    }[method]()


@pytest.mark.parametrize("method", ["text", "image", "sum", "average", "product", "normalised-sum"])
def test_a_baseline_is_its_formula(method: str) -> None:
    model, x = WordSumModel(), image_vectors(200)
    images = image_vectors(3, seed=1)
    queries = [
        ComposedQuery(y, (text,))
        for y, text in zip(images, ("red dog", "cat", "red dog"), strict=True)
    ]
    for query, plan in zip(
        queries, compose_all(method, queries, MatrixDatabase(x), model), strict=True
    ):
        assert query.image is not None
        s_t, s_i = (
            x.double() @ model.embed_texts(query.texts)[0].double(),
            x.double() @ query.image.double(),
        )
        expected = formula(method, s_t, s_i)
        found = plan.scores(x).double()
        atol = 1e-4 if method == "normalised-sum" else 1e-5
        torch.testing.assert_close(found, expected, atol=atol, rtol=1e-5)
        assert_ranked(found.argsort(descending=True), expected, atol)
        if (
            method != "product"
        ):  # of two negative similarities the product is large: no direction finds that
            assert_ranked(MatrixDatabase(x).nearest(plan.direction[None], 3)[1][0], expected, atol)


def test_terms_are_added_and_a_vector_is_taken_as_it_is() -> None:
    model, x = WordSumModel(), image_vectors(20)
    plan = compose(
        "text", ComposedQuery(texts=("dog", "grass"), weights=(2.0, -0.5)), MatrixDatabase(x), model
    )
    a, b = model.embed_texts(["dog", "grass"])
    total = 2 * a - 0.5 * b
    torch.testing.assert_close(plan.vectors[0], total / total.norm())
    given = image_vectors(1, seed=4)[0]
    torch.testing.assert_close(
        compose("text", ComposedQuery(text=given), MatrixDatabase(x), model).vectors[0], given
    )


@pytest.mark.parametrize("budget", [1 << 8, 1 << 12, 1 << 24])
def test_nearest_is_a_full_sort_with_ties_by_row(budget: int) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(-1, 2, (150, 4), generator=draw).float()  # many equal similarities
    q = torch.randint(-1, 2, (9, 4), generator=draw).float()
    for k in (1, 7, 150, 400):
        scores, rows = nearest_rows(q, x, k, budget)
        expected = (q @ x.T).sort(dim=1, descending=True, stable=True)
        assert rows.tolist() == expected.indices[:, :k].tolist()
        assert scores.tolist() == expected.values[:, :k].tolist()
    assert nearest_rows(q[:0], x, 3)[1].shape == (0, 3)
    assert top_k(q @ x.T, 0)[1].shape == (9, 0)


def test_every_method_is_named_and_its_options_are_known() -> None:
    for name in METHODS:
        assert "queries" not in METHODS[name].options
    assert METHODS["freedom"].options["weights"] == "frequency"
    assert METHODS["freedom-l+"].options["weights"] == "uniform"
    assert "fusion" not in METHODS["freedom"].options
    assert METHODS["weicom"].options == {"weight": 0.5}


@pytest.mark.parametrize(
    ("method", "query", "rows", "values"),
    [
        ("fredom", ComposedQuery(image_vectors(1)[0], ("a",)), 3, "'fredom'.*'freedom'"),
        ("sum", ComposedQuery(texts=("a",)), 3, "'sum'.*image"),
        ("weicom", ComposedQuery(image_vectors(1)[0]), 3, "'weicom'.*text"),
        ("freedom", ComposedQuery(image_vectors(1)[0], ("a",)), 3, "'freedom'.*memory"),
        ("searle", ComposedQuery(image_vectors(1)[0], ("a",)), 3, "'searle'.*model"),
        ("text", ComposedQuery(texts=("a",)), 0, "empty"),
        ("text", ComposedQuery(texts=("a", "b"), weights=(1.0,)), 3, r"\b2\b"),
        ("text", ComposedQuery(texts=("a", "a"), weights=(1.0, -1.0)), 3, "a, a"),
        ("text", ComposedQuery(texts=("a", " a"), weights=(1.0, -1.0)), 3, "a, *a"),
        (
            "basic",
            ComposedQuery(image_vectors(1)[0], texts=("a", "a"), weights=(2.0, -2.0)),
            3,
            "a, a",
        ),
    ],
)
def test_bad_questions(method: str, query: Any, rows: int, values: str) -> None:
    with pytest.raises(ValueError, match=values):
        compose(method, query, MatrixDatabase(image_vectors(3)[:rows]), WordSumModel())


def test_an_unwanted_text_leaves_the_wanted_one() -> None:
    """Only what "dog puppy" has beside "dog" is subtracted, by hand and by its properties."""
    model = WordSumModel(64)
    dog, puppy, grass = model.embed_texts(["dog", "dog puppy", "grass"])
    near = float(dog @ puppy)
    assert near > 0.5

    def vector(*terms: tuple[str, float]) -> torch.Tensor:
        texts, weights = zip(*terms, strict=True)
        return text_vectors(model, [ComposedQuery(None, texts, weights)])[0]

    found = vector(("dog", 1.0), ("dog puppy", -1.0))
    expected = dog - (puppy - near * dog)
    torch.testing.assert_close(found, expected / expected.norm())
    difference = (dog - puppy) / (dog - puppy).norm()
    assert found @ dog > 0.7 > difference @ dog  # the plain difference has lost the dog
    assert found @ puppy < near - 0.3
    only = vector(("grass", -1.0), ("dog", -2.0))
    torch.testing.assert_close(only, -(grass + 2 * dog) / (grass + 2 * dog).norm())
