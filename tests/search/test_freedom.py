"""FreeDom is equations (4.2) to (4.17), word for word: an oracle with loops finds the same words, vectors, rankings."""

from typing import Any

import pytest
import torch
from torch import Tensor

from cenote.search import Matrix, Query, WordMemory, compose, compose_all, frequent_words
from cenote.search.texts import encode

from .toy import Toy, vectors

WORDS = [f"w{i}" for i in range(40)]
VARIANTS = ["freedom-word", "freedom-e", "freedom-l", "freedom-e+", "freedom-l+", "freedom"]


def memory(model: Toy) -> WordMemory:
    return WordMemory(WORDS, model.embed_texts(WORDS))


def ranked(query: Tensor, rows: Tensor) -> list[int]:
    """All rows, best first, of equals the first."""
    scores = [float((query * row).sum()) for row in rows]
    return sorted(range(len(rows)), key=lambda i: (-scores[i], i))


def slow(
    variant: str, y: Tensor, text: str, x: Tensor, words: WordMemory, model: Toy, inside: int | None,
    k: int, n: int, m: int,
) -> Tensor:  # fmt: skip
    """h(y, t) from the equations."""
    if variant in ("freedom-word", "freedom-e", "freedom-l"):
        labels = [WORDS[i] for i in ranked(y, words.vectors)[: 1 if variant == "freedom-word" else m]]  # (4.4)
        weights = [1.0] * len(labels)
    else:
        proxies = [y, *[x[i] for i in ranked(y, x) if i != inside][: k - 1]]  # (4.13)
        counts: dict[str, int] = {}
        for proxy in proxies:
            for i in ranked(proxy, words.vectors)[:n]:  # (4.14)
                counts[WORDS[i]] = counts.get(WORDS[i], 0) + 1
        labels = []
        while counts and len(labels) < m:
            best = next(word for word in counts if counts[word] == max(counts.values()))  # the first seen
            labels.append(best)
            counts[best] = -counts[best]
            if max(counts.values()) < 0:
                break
        weights = [-counts[word] / -counts[labels[0]] if variant == "freedom" else 1.0 for word in labels]
    if variant.startswith("freedom-e"):
        return model.embed_texts([" ".join([*labels, text])])[0]  # (4.10)
    total = torch.zeros(model.dim)
    for word, a in zip(labels, weights, strict=True):
        total += a * model.embed_texts([f"{word} {text}"])[0]  # (4.12)
    return total


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stored", [False, True])
def test_every_variant_is_its_equation(variant: str, stored: bool) -> None:
    model, x = Toy(), vectors(60)
    words = memory(model)
    database = Matrix(x, words.nearest(x, 6) if stored else None)
    settings: dict[str, Any] = {"k": 5, "n": 4, "m": 3}
    outside = vectors(2, seed=1)
    queries = [Query(x[7], ("red",), inside=7), Query(outside[0], ("blue",)), Query(outside[0], ("red",))]
    given = {**settings, **({"m": 1} if variant == "freedom-word" else {})}
    plans = compose_all(variant, queries, database, model, words, **given)
    for query, plan in zip(queries, plans, strict=True):
        assert query.image is not None
        expected = slow(variant, query.image, query.texts[0], x, words, model, query.inside, **settings)
        torch.testing.assert_close(plan.vectors[0], expected, atol=1e-6, rtol=0)
        assert plan.scores(x).argsort(descending=True, stable=True).tolist() == ranked(expected, x)
        torch.testing.assert_close(plan.direction, plan.vectors[0])  # one search is final


def test_late_fusion_is_the_sum_of_separate_searches() -> None:
    model, x = Toy(), vectors(50)
    plan = compose("freedom", Query(x[0], ("red",), inside=0), Matrix(x), model, memory(model), k=6)
    lists = [w["weight"] * (x @ model.embed_texts([f"{w['word']} red"])[0]) for w in plan.why["words"]]
    torch.testing.assert_close(plan.scores(x), torch.stack(lists).sum(0), atol=1e-5, rtol=0)
    assert max(w["weight"] for w in plan.why["words"]) == 1


def test_ties_go_to_the_word_first_seen() -> None:
    lists = [["cat", "dog"], ["bird", "dog"], ["fish", "cat"]]
    assert frequent_words(lists, 3) == (["cat", "dog", "bird"], [1.0, 1.0, 0.5])
    assert frequent_words(lists, 1) == (["cat"], [1.0])
    assert frequent_words([["a", "b"]], 7) == (["a", "b"], [1.0, 1.0])  # fewer than m
    assert frequent_words([], 7) == ([], [])


def test_a_query_in_the_memory_is_not_its_own_neighbour_twice() -> None:
    model, x = Toy(), vectors(30)
    database, words = Matrix(x), memory(model)
    inside = compose("freedom", Query(x[3], ("red",), inside=3), database, model, words, k=4)
    others = Matrix(torch.cat([x[:3], x[4:]]))
    outside = compose("freedom", Query(x[3], ("red",)), others, model, words, k=4)
    torch.testing.assert_close(inside.vectors, outside.vectors)
    assert 3 not in inside.why["proxies"] and len(inside.why["proxies"]) == 3


def test_another_memory_and_none() -> None:
    model, x, z = Toy(), vectors(30), vectors(40, seed=5)
    words, query = memory(model), Query(x[3], ("red",), inside=3)
    other = compose("freedom", query, Matrix(x), model, words, k=4, memory=Matrix(z))
    expected = slow("freedom", x[3], "red", z, words, model, None, 4, 7, 7)
    torch.testing.assert_close(other.vectors[0], expected, atol=1e-6, rtol=0)
    none = compose("freedom", query, Matrix(x), model, words, memory="none")
    alone = compose("freedom-l", query, Matrix(x), model, words)
    torch.testing.assert_close(none.vectors, alone.vectors)
    assert none.why["proxies"] == []


def test_templates_terms_and_injected_words() -> None:
    model, x = Toy(), vectors(30)
    words, database = memory(model), Matrix(vectors(30))
    plan = compose("freedom-word", Query(x[0], ("red",)), database, model, words, template="a {text} of {word}")
    word = plan.why["words"][0]["word"]
    torch.testing.assert_close(plan.vectors[0], model.embed_texts([f"a red of {word}"])[0])
    both = compose("freedom-word", Query(x[0], ("red", "old"), (2.0, -1.0)), database, model, words)
    one, two = model.embed_texts([f"{word} red", "old"])  # what is not wanted does not take the word along
    torch.testing.assert_close(both.vectors[0], 2 * one - two)
    late = compose("freedom", Query(x[0], ("red", "old"), (1.0, -0.5)), database, model, words, k=5)
    expected = torch.zeros(model.dim)
    for w in late.why["words"]:
        expected += w["weight"] * (model.embed_texts([f"{w['word']} red"])[0] - 0.5 * two)
    torch.testing.assert_close(late.vectors[0], expected)
    with pytest.raises(ValueError, match="before a text that is wanted"):
        compose("freedom", Query(x[0], ("old",), (-1.0,)), database, model, words)
    told = compose("freedom-l+", Query(x[0], ("red",)), database, model, words, m=0, injected=["house"])
    torch.testing.assert_close(told.vectors[0], model.embed_texts(["house red"])[0])
    early = compose("freedom-e+", Query(x[0], ("red",)), database, model, words, m=2, injected=["house"])
    named = [w["word"] for w in early.why["words"]]
    assert len(named) == 3 and named[-1] == "house"
    torch.testing.assert_close(early.vectors[0], model.embed_texts([" ".join([*named, "red"])])[0])


def test_texts_are_encoded_once() -> None:
    model = Toy()
    words = memory(model)
    model.asked.clear()
    first = encode(model, ["a b", "c", "a b"])
    encode(model, ["c", "d"])
    assert model.asked == ["a b", "c", "d"]
    torch.testing.assert_close(first[0], first[2])
    queries = [Query(y, ("red",)) for y in vectors(20, seed=2)]
    compose_all("freedom", queries, Matrix(vectors(30)), model, words)
    assert len(model.asked) == len(set(model.asked))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"k": 0}, "k is a whole number at least 1"),
        ({"m": 0}, "m is a whole number at least 1"),
        ({"weights": "many"}, "weights are frequency or uniform"),
        ({"template": "{word}"}, "a template holds {word} and {text}"),
        ({"memory": "laion"}, "the visual memory is"),
        ({"injected": ["a", "b"]}, "1 queries have 1 injected words"),
        ({"fuse": 7}, "'freedom' has no option 'fuse'"),
    ],
)
def test_bad_options_get_a_sentence(options: dict[str, Any], sentence: str) -> None:
    model, x = Toy(), vectors(5)
    with pytest.raises(ValueError, match=sentence):
        compose("freedom", Query(x[0], ("red",)), Matrix(x), model, memory(model), **options)
