"""Each baseline is its formula; the plain database finds what a full sort finds; bad questions get a sentence."""

from typing import Any

import pytest
import torch
from torch import Tensor

from cenote.search import METHODS, Matrix, Query, compose, compose_all
from cenote.search.matrix import best, nearest_rows

from .toy import Toy, vectors


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
    model, x = Toy(), vectors(200)
    images = vectors(3, seed=1)
    queries = [Query(y, (text,)) for y, text in zip(images, ("red dog", "cat", "red dog"), strict=True)]
    for query, plan in zip(queries, compose_all(method, queries, Matrix(x), model), strict=True):
        assert query.image is not None
        s_t, s_i = x.double() @ model.embed_texts(query.texts)[0].double(), x.double() @ query.image.double()
        expected = formula(method, s_t, s_i)
        found = plan.scores(x).double()
        torch.testing.assert_close(found, expected, atol=1e-5 if method == "normalised-sum" else 1e-6, rtol=1e-6)
        assert found.argsort(descending=True).tolist() == expected.argsort(descending=True).tolist()
        if method != "product":  # of two negative similarities the product is large: no direction finds that
            assert Matrix(x).nearest(plan.direction[None], 3)[1][0].tolist() == found.topk(3).indices.tolist()


def test_terms_are_added_and_a_vector_is_taken_as_it_is() -> None:
    model, x = Toy(), vectors(20)
    plan = compose("text", Query(texts=("dog", "grass"), weights=(2.0, -0.5)), Matrix(x), model)
    a, b = model.embed_texts(["dog", "grass"])
    total = 2 * a - 0.5 * b
    torch.testing.assert_close(plan.vectors[0], total / total.norm())
    given = vectors(1, seed=4)[0]
    torch.testing.assert_close(compose("text", Query(text=given), Matrix(x), model).vectors[0], given)


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
    assert best(q @ x.T, 0)[1].shape == (9, 0)


def test_every_method_is_named_and_its_options_are_known() -> None:
    for name in METHODS:
        assert "queries" not in METHODS[name].options
    assert METHODS["freedom"].options["weights"] == "frequency"
    assert METHODS["freedom-l+"].options["weights"] == "uniform"
    assert "fusion" not in METHODS["freedom"].options
    assert METHODS["weicom"].options == {"weight": 0.5}


@pytest.mark.parametrize(
    ("method", "query", "rows", "sentence"),
    [
        ("fredom", Query(vectors(1)[0], ("a",)), 3, "no method 'fredom'; did you mean 'freedom'?"),
        ("sum", Query(texts=("a",)), 3, "'sum' needs an image"),
        ("weicom", Query(vectors(1)[0]), 3, "'weicom' needs a text"),
        ("freedom", Query(vectors(1)[0], ("a",)), 3, "'freedom' needs a text memory"),
        ("searle", Query(vectors(1)[0], ("a",)), 3, "'searle' needs a model whose text encoder takes made-up words"),
        ("text", Query(texts=("a",)), 0, "the database is empty"),
        ("image", Query(torch.ones(5)), 3, "the query has"),
        ("text", Query(texts=("a", "b"), weights=(1.0,)), 3, "2 texts have 2 weights"),
        ("text", Query(texts=("a", "a"), weights=(1.0, -1.0)), 3, "cancel each other out: a, a"),
        ("text", Query(texts=("a", " a"), weights=(1.0, -1.0)), 3, "cancel each other out"),
        ("basic", Query(vectors(1)[0], texts=("a", "a"), weights=(2.0, -2.0)), 3, "cancel each other out"),
    ],
)
def test_bad_questions_get_a_sentence(method: str, query: Any, rows: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")):
        compose(method, query, Matrix(vectors(3)[:rows]), Toy())
