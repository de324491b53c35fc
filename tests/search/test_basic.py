"""BASIC against an oracle that goes through its steps one query, one image, one word at a time."""

import math

import numpy as np
import pytest
import torch

from cenote.search import ComposedQuery, MatrixDatabase, compose_all
from cenote.search.basic import basic_space
from cenote.search.words import remember_words
from tests.toy_models import WordSumModel, image_vectors

from .rankings import assert_ranked

SUBJECTS = [f"thing{i}" for i in range(12)]
STYLES = [f"style{i}" for i in range(9)]
DIM = 16


def slow(
    y: np.ndarray,
    text: str,
    x: np.ndarray,
    model: WordSumModel,
    components: int,
    expansion: int,
    contextual: int,
) -> list:
    """From the paper's description, in double."""
    a = model.embed_texts(SUBJECTS).double().numpy()
    b = model.embed_texts(STYLES).double().numpy()
    mean_x, mean_t = x.mean(0), a.mean(0)
    a, b, centred = a - mean_t, b - mean_t, x - mean_x
    s_a = sum(np.outer(row, row) for row in a) / (len(a) - 1)
    s_b = sum(np.outer(row, row) for row in b) / (len(b) - 1)
    values, axes = np.linalg.eigh(0.8 * s_a - 0.2 * s_b)
    order = [i for i in np.argsort(-values) if values[i] > 0][:components]
    project = sum(np.outer(axes[:, i], axes[:, i]) for i in order)
    around = [model.embed_texts([f"{s} {text}"])[0].double().numpy() for s in SUBJECTS[:contextual]]
    around += [
        model.embed_texts([f"{text} {s}"])[0].double().numpy() for s in SUBJECTS[:contextual]
    ]
    t = sum(around) / len(around) if around else model.embed_texts([text])[0].double().numpy()
    t = t / math.sqrt(sum(t * t)) - mean_t
    image = y - mean_x
    first = [float(row @ project @ image) for row in centred]
    near = sorted(range(len(x)), key=lambda i: -first[i])[:expansion]
    if expansion:
        weights = [math.exp(0.1 * first[i]) for i in near] + [math.exp(0.1)]
        image = sum(w * v for w, v in zip(weights, [*centred[near], image], strict=True)) / sum(
            weights
        )
    image = project @ image
    least_t = min(float(word @ row) for word in a for row in centred)
    least_i = min(float(one @ other) for one in centred for other in centred)
    scores = []
    for row in centred:
        s_t = max((float(t @ row) - least_t) / abs(least_t), 0)
        s_i = max((float(image @ row) - least_i) / abs(least_i), 0)
        scores.append(s_t * s_i - 0.1 * (s_t + s_i) ** 2)
    return scores


@pytest.mark.parametrize(
    ("components", "expansion", "contextual"), [(6, 5, 4), (250, 0, 0), (3, 40, 12)]
)
def test_scores_are_the_oracle_s(components: int, expansion: int, contextual: int) -> None:
    model, x = WordSumModel(DIM), image_vectors(40, DIM)  # all of the database is the sample
    queries = [
        ComposedQuery(x[3], ("red",), inside=3),
        ComposedQuery(image_vectors(1, DIM, 8)[0], ("old dog",)),
    ]
    plans = compose_all(
        "basic", queries, MatrixDatabase(x), model, subjects=SUBJECTS, styles=STYLES, components=components,
        expansion=expansion, contextual=contextual,
    )  # fmt: skip
    for query, plan in zip(queries, plans, strict=True):
        assert query.image is not None
        expected = slow(
            query.image.double().numpy(),
            query.texts[0],
            x.double().numpy(),
            model,
            components,
            expansion,
            contextual,
        )
        np.testing.assert_allclose(plan.scores(x), expected, atol=1e-5, rtol=1e-5)
        assert_ranked(plan.scores(x).argsort(descending=True), torch.tensor(expected))


def test_candidates_hold_the_best() -> None:
    model, x = WordSumModel(DIM), image_vectors(3000, DIM)
    query = ComposedQuery(x[3], ("red",), inside=3)
    plan = compose_all(
        "basic", [query], MatrixDatabase(x), model, subjects=SUBJECTS, styles=STYLES
    )[0]
    candidates = MatrixDatabase(x).nearest(plan.direction[None], 300)[1][0].tolist()
    assert set(plan.scores(x).topk(10).indices.tolist()) <= set(candidates)


def test_the_projection_is_idempotent() -> None:
    model, x = WordSumModel(DIM), image_vectors(50, DIM)
    space = basic_space(
        MatrixDatabase(x),
        remember_words(model, SUBJECTS),
        remember_words(model, STYLES),
        components=5,
    )
    torch.testing.assert_close(
        space.projection @ space.projection, space.projection, atol=1e-5, rtol=0
    )
    assert int(torch.linalg.matrix_rank(space.projection, atol=1e-3)) == 5
    assert space.minima[0] < 0 and space.minima[1] < 0


def test_bad_options() -> None:
    for option, value in (("contrast", 2), ("components", 0), ("harris", -1), ("expansion", 1.5)):
        with pytest.raises(ValueError, match=option):
            compose_all(
                "basic",
                [ComposedQuery(image_vectors(1)[0], ("a",))],
                MatrixDatabase(image_vectors(5)),
                WordSumModel(),
                **{option: value},
            )
