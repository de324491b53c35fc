"""FreeDom is equations (4.2) to (4.17), word for word: an oracle with loops finds the same words, vectors, rankings."""

from typing import Any

import pytest
import torch
from torch import Tensor

from cenote.search import (
    ComposedQuery,
    MatrixDatabase,
    WordMemory,
    compose,
    compose_all,
    frequent_words,
)
from cenote.search.composition import encode_texts
from tests.toy_models import WordSumModel, image_vectors

from .rankings import assert_ranked

WORDS = [f"w{i}" for i in range(40)]
VARIANTS = ["freedom-word", "freedom-e", "freedom-l", "freedom-e+", "freedom-l+", "freedom"]


def memory(model: WordSumModel) -> WordMemory:
    return WordMemory(WORDS, model.embed_texts(WORDS))


def ranked(query: Tensor, rows: Tensor) -> list[int]:
    """All rows, best first; ties keep the lower row."""
    scores = [float((query * row).sum()) for row in rows]
    return sorted(range(len(rows)), key=lambda i: (-scores[i], i))


def slow(
    variant: str, y: Tensor, text: str, x: Tensor, words: WordMemory, model: WordSumModel, inside: int | None,
    k: int, n: int, m: int,
) -> Tensor:  # fmt: skip
    """h(y, t) from the equations."""
    if variant in ("freedom-word", "freedom-e", "freedom-l"):
        labels = [
            WORDS[i] for i in ranked(y, words.vectors)[: 1 if variant == "freedom-word" else m]
        ]  # (4.4)
        weights = [1.0] * len(labels)
    else:
        proxies = [y, *[x[i] for i in ranked(y, x) if i != inside][: k - 1]]  # (4.13)
        counts: dict[str, int] = {}
        for proxy in proxies:
            for i in ranked(proxy, words.vectors)[:n]:  # (4.14)
                counts[WORDS[i]] = counts.get(WORDS[i], 0) + 1
        labels = []
        while counts and len(labels) < m:
            best = next(
                word for word in counts if counts[word] == max(counts.values())
            )  # the first seen
            labels.append(best)
            counts[best] = -counts[best]
            if max(counts.values()) < 0:
                break
        weights = [
            -counts[word] / -counts[labels[0]] if variant == "freedom" else 1.0 for word in labels
        ]
    if variant.startswith("freedom-e"):
        return model.embed_texts([" ".join([*labels, text])])[0]  # (4.10)
    total = torch.zeros(model.dim)
    for word, a in zip(labels, weights, strict=True):
        total += a * model.embed_texts([f"{word} {text}"])[0]  # (4.12)
    return total


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stored", [False, True])
def test_every_variant_is_its_equation(variant: str, stored: bool) -> None:
    model, x = WordSumModel(), image_vectors(60)
    words = memory(model)
    database = MatrixDatabase(x, words.nearest(x, 6) if stored else None)
    settings: dict[str, Any] = {"k": 5, "n": 4, "m": 3}
    outside = image_vectors(2, seed=1)
    queries = [
        ComposedQuery(x[7], ("red",), inside=7),
        ComposedQuery(outside[0], ("blue",)),
        ComposedQuery(outside[0], ("red",)),
    ]
    given = {**settings, **({"m": 1} if variant == "freedom-word" else {})}
    plans = compose_all(variant, queries, database, model, words, **given)
    for query, plan in zip(queries, plans, strict=True):
        assert query.image is not None
        expected = slow(
            variant, query.image, query.texts[0], x, words, model, query.inside, **settings
        )
        torch.testing.assert_close(plan.vectors[0], expected, atol=1e-5, rtol=0)
        assert_ranked(
            plan.scores(x).argsort(descending=True, stable=True), x.double() @ expected.double()
        )
        torch.testing.assert_close(plan.direction, plan.vectors[0])  # one search is final


def test_late_fusion_is_the_sum_of_separate_searches() -> None:
    model, x = WordSumModel(), image_vectors(50)
    plan = compose(
        "freedom",
        ComposedQuery(x[0], ("red",), inside=0),
        MatrixDatabase(x),
        model,
        memory(model),
        k=6,
    )
    lists = [
        w["weight"] * (x @ model.embed_texts([f"{w['word']} red"])[0]) for w in plan.why["words"]
    ]
    torch.testing.assert_close(plan.scores(x), torch.stack(lists).sum(0), atol=1e-5, rtol=0)
    assert max(w["weight"] for w in plan.why["words"]) == 1


def test_ties_go_to_the_word_first_seen() -> None:
    lists = [["cat", "dog"], ["bird", "dog"], ["fish", "cat"]]
    assert frequent_words(lists, 3) == (["cat", "dog", "bird"], [1.0, 1.0, 0.5])
    assert frequent_words(lists, 1) == (["cat"], [1.0])
    assert frequent_words([["a", "b"]], 7) == (["a", "b"], [1.0, 1.0])  # fewer than m
    assert frequent_words([], 7) == ([], [])


def test_a_query_in_the_memory_is_not_its_own_neighbour_twice() -> None:
    model, x = WordSumModel(), image_vectors(30)
    database, words = MatrixDatabase(x), memory(model)
    inside = compose(
        "freedom", ComposedQuery(x[3], ("red",), inside=3), database, model, words, k=4
    )
    others = MatrixDatabase(torch.cat([x[:3], x[4:]]))
    outside = compose("freedom", ComposedQuery(x[3], ("red",)), others, model, words, k=4)
    torch.testing.assert_close(inside.vectors, outside.vectors)
    assert 3 not in inside.why["proxies"] and len(inside.why["proxies"]) == 3


def test_another_memory_and_none() -> None:
    model, x, z = WordSumModel(), image_vectors(30), image_vectors(40, seed=5)
    words, query = memory(model), ComposedQuery(x[3], ("red",), inside=3)
    other = compose(
        "freedom", query, MatrixDatabase(x), model, words, k=4, memory=MatrixDatabase(z)
    )
    expected = slow("freedom", x[3], "red", z, words, model, None, 4, 7, 7)
    torch.testing.assert_close(other.vectors[0], expected, atol=1e-5, rtol=0)
    none = compose("freedom", query, MatrixDatabase(x), model, words, memory="none")
    alone = compose("freedom-l", query, MatrixDatabase(x), model, words)
    torch.testing.assert_close(none.vectors, alone.vectors)
    assert none.why["proxies"] == []


def test_templates_terms_and_injected_words() -> None:
    model, x = WordSumModel(), image_vectors(30)
    words, database = memory(model), MatrixDatabase(image_vectors(30))
    plan = compose(
        "freedom-word",
        ComposedQuery(x[0], ("red",)),
        database,
        model,
        words,
        template="a {text} of {word}",
    )
    word = plan.why["words"][0]["word"]
    torch.testing.assert_close(plan.vectors[0], model.embed_texts([f"a red of {word}"])[0])
    both = compose(
        "freedom-word", ComposedQuery(x[0], ("red", "old"), (2.0, -1.0)), database, model, words
    )
    one, two = model.embed_texts(
        [f"{word} red", "old"]
    )  # what is not wanted does not take the word along
    torch.testing.assert_close(both.vectors[0], 2 * one - two)
    late = compose(
        "freedom", ComposedQuery(x[0], ("red", "old"), (1.0, -0.5)), database, model, words, k=5
    )
    expected = torch.zeros(model.dim)
    for w in late.why["words"]:
        expected += w["weight"] * (model.embed_texts([f"{w['word']} red"])[0] - 0.5 * two)
    torch.testing.assert_close(late.vectors[0], expected)
    with pytest.raises(ValueError):  # no positive text
        compose("freedom", ComposedQuery(x[0], ("old",), (-1.0,)), database, model, words)
    injected = compose(
        "freedom-l+", ComposedQuery(x[0], ("red",)), database, model, words, m=0, injected=["house"]
    )
    torch.testing.assert_close(injected.vectors[0], model.embed_texts(["house red"])[0])
    early = compose(
        "freedom-e+", ComposedQuery(x[0], ("red",)), database, model, words, m=2, injected=["house"]
    )
    named = [w["word"] for w in early.why["words"]]
    assert len(named) == 3 and named[-1] == "house"
    torch.testing.assert_close(early.vectors[0], model.embed_texts([" ".join([*named, "red"])])[0])


def test_texts_are_encoded_once() -> None:
    model = WordSumModel()
    words = memory(model)
    model.asked.clear()
    first = encode_texts(model, ["a b", "c", "a b"])
    encode_texts(model, ["c", "d"])
    assert model.asked == ["a b", "c", "d"]
    torch.testing.assert_close(first[0], first[2])
    queries = [ComposedQuery(y, ("red",)) for y in image_vectors(20, seed=2)]
    compose_all("freedom", queries, MatrixDatabase(image_vectors(30)), model, words)
    assert len(model.asked) == len(set(model.asked))


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"k": 0}, r"\bk\b.*\b0\b"),
        ({"m": 0}, r"\bm\b.*\b0\b"),
        ({"weights": "many"}, "weights"),
        ({"template": "{word}"}, "template.*{text}"),
        ({"memory": "laion"}, "memory"),
        ({"fuse": 7}, "'freedom'.*'fuse'"),
    ],
)
def test_bad_options(options: dict[str, Any], values: str) -> None:
    model, x = WordSumModel(), image_vectors(5)
    with pytest.raises(ValueError, match=values):
        compose(
            "freedom",
            ComposedQuery(x[0], ("red",)),
            MatrixDatabase(x),
            model,
            memory(model),
            **options,
        )
