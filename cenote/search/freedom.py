"""FreeDom [Dissertation Eq. 4.2-4.17]: an image becomes words, its own and its neighbours'.

The words are then combined with the text into one vector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from ..options import check_number
from .composition import (
    ComposedQuery,
    CompositionContext,
    Scorer,
    encode_texts,
    image_vectors,
    single,
    weighted_texts,
)
from .database import Database
from .words import WordMemory

K, N, M = 20, 7, 7  # proxies, words of each proxy, words of the query
FUSIONS = ("word", "early", "late")
WEIGHTS = ("frequency", "uniform")
MEMORIES = ("database", "none")
TEMPLATE = "{word} {text}"  # w + t, separated by a space
Word = TypeVar("Word", bound=Hashable)
WeightedWords = list[tuple[str, float]]


class InvertedImage(NamedTuple):
    """An image in words."""

    words: list[str]
    frequencies: list[float]
    proxies: list[int]  # rows of the visual memory, best first, without the query itself


def freedom(
    queries: Sequence[ComposedQuery],
    context: CompositionContext,
    k: int = K,
    n: int = N,
    m: int = M,
    fusion: str = "late",
    weights: str = "frequency",
    memory: Database | str = "database",
    template: str = TEMPLATE,
    injected: Sequence[str | None] | None = None,
) -> list[Scorer]:
    """Compose by FreeDom or one of its variants.

    `fusion` is word [Dissertation Eq. 4.7], early [4.9, 4.15] or late [4.11, 4.16, 4.17].
    `memory` is "database", "none" (no expansion) or another Database. `template` combines
    {word} and {text}. `injected` adds a word of weight 1 to each query [Table 4.6].
    """
    inverted = invert(queries, context, k, n, m, memory)
    named = [_weighted_words(image, weights) for image in inverted]
    if injected is not None:
        for pairs, word in zip(named, injected, strict=True):
            pairs += [] if word is None else [(word, 1.0)]
    if fusion == "word":
        named = [pairs[:1] for pairs in named]
    fused = named
    if fusion == "early":  # w_1 + ... + w_m
        fused = [[(" ".join(word for word, _ in pairs), 1.0)] for pairs in named]
    texts = [weighted_texts(query) for query in queries]
    settings = {"k": k, "n": n, "m": m, "fusion": fusion}
    scorers = []
    vectors = _fuse(texts, fused, context, template)
    for vector, image, pairs in zip(vectors, inverted, named, strict=True):
        words = [{"word": word, "weight": weight} for word, weight in pairs]
        scorers.append(single(vector, {"words": words, "proxies": image.proxies, **settings}))
    return scorers


def check_freedom(
    k: int,
    n: int,
    m: int,
    fusion: str,
    weights: str,
    memory: Database | str,
    template: str,
    injected: Sequence[str | None] | None,
) -> None:
    check_number("k", k, whole=True, least=1)
    check_number("n", n, whole=True, least=1)
    check_number("m", m, whole=True, least=0 if injected else 1)
    for name, value, choices in (
        ("fusion", fusion, FUSIONS),
        ("weights", weights, WEIGHTS),
        ("memory", memory, MEMORIES),
    ):
        if isinstance(value, str) and value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got '{value}'")
    if "{word}" not in template or "{text}" not in template:
        example = "'a {text} of {word}'"
        raise ValueError(f"template needs {{word}} and {{text}}, as {example}, got '{template}'")


def frequent_words(
    lists_of_words: Iterable[Iterable[Word]], m: int = M
) -> tuple[list[Word], list[float]]:
    """Return the m most frequent words of all lists, and count / largest count of each.

    Ties keep the word that comes first, scanning the lists (proxies by similarity) and in each
    its words (by similarity). Fewer different words than m are all returned.
    """
    check_number("m", m, whole=True, least=0)
    counts = Counter(chain.from_iterable(lists_of_words)).most_common(m)  # ties in order of input
    return [word for word, _ in counts], [count / counts[0][1] for _, count in counts]


def invert(
    queries: Sequence[ComposedQuery],
    context: CompositionContext,
    k: int = K,
    n: int = N,
    m: int = M,
    memory: Database | str = "database",
) -> list[InvertedImage]:
    """Return the words of each query image.

    Without a memory phi_V [Dissertation Eq. 4.6]: the m nearest words, all of frequency 1; with
    one phi+ [Eq. 4.13, 4.14].
    """
    assert context.words is not None  # checked by compose_all
    images, inside = image_vectors(queries), [query.inside for query in queries]
    if not isinstance(memory, str) or memory == "none":
        inside = [None] * len(queries)  # rows of the database are not rows of another memory
    # An image that is combined with several texts is inverted once.
    keys = list(zip((image.numpy().tobytes() for image in images), inside, strict=True))
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    places = list(first.values())
    if memory == "none":
        inverted = _nearest_words(images[places], context.words, m)
    else:
        database = context.database if isinstance(memory, str) else memory
        rows = [inside[place] for place in places]
        inverted = _expand(images[places], rows, database, context.words, k, n, m)
    by_key = dict(zip(first, inverted, strict=True))
    return [by_key[key] for key in keys]


def _nearest_words(images: Tensor, memory: WordMemory, m: int) -> list[InvertedImage]:
    ids = memory.nearest(images, m).tolist()
    return [InvertedImage([memory.words[i] for i in row], [1.0] * len(row), []) for row in ids]


def _expand(
    images: Tensor,
    inside: list[int | None],
    memory: Database,
    words: WordMemory,
    k: int,
    n: int,
    m: int,
) -> list[InvertedImage]:
    """Take n words of the query and of its k - 1 nearest images, and the m most frequent of all.

    [Dissertation Eq. 4.13, 4.14]
    """
    query_words = words.nearest(images, n).tolist()
    nearest = memory.nearest(images, min(k, len(memory)))[1].tolist()
    proxies = [
        [row for row in rows if row != query_row][: k - 1]
        for rows, query_row in zip(nearest, inside, strict=True)
    ]
    rows = torch.tensor(sorted({row for group in proxies for row in group}), dtype=torch.long)
    words_of_row = dict(zip(rows.tolist(), words_of(memory, rows, words, n), strict=True))
    inverted = []
    for ids, group in zip(query_words, proxies, strict=True):
        ids, frequencies = frequent_words([ids, *(words_of_row[row] for row in group)], m)
        inverted.append(InvertedImage([words.words[i] for i in ids], frequencies, group))
    return inverted


def words_of(memory: Database, rows: Tensor, words: WordMemory, n: int) -> list[list[int]]:
    """Return the ids of the n nearest words of these images, from the index if it stores n."""
    if not len(rows):
        return []
    stored = memory.words(rows)
    if stored is not None and stored.shape[1] >= min(n, len(words.words)):
        return stored[:, :n].tolist()
    return words.nearest(memory.vectors(rows), n).tolist()


def _weighted_words(image: InvertedImage, weights: str) -> WeightedWords:
    a = image.frequencies if weights == "frequency" else [1.0] * len(image.words)
    return list(zip(image.words, a, strict=True))


def _fuse(
    texts: list[WeightedWords],
    named: list[WeightedWords],
    context: CompositionContext,
    template: str,
) -> list[Tensor]:
    """Compute sum_i a_i g(w_i + t) [Dissertation Eq. 4.12]; several texts are added.

    By linearity it is one vector, which is not normalized. An unwanted text is subtracted
    without the image's words: g("dog grass") would subtract the dog as well.
    """
    terms = [
        [(_fill(template, word, text), a * b) for text, b in pairs if b >= 0 for word, a in words]
        + [(text, b * sum(a for _, a in words)) for text, b in pairs if b < 0]
        for pairs, words in zip(texts, named, strict=True)
    ]
    sentences = list(dict.fromkeys(sentence for pairs in terms for sentence, _ in pairs))
    vectors = encode_texts(context.model, sentences)
    place = {sentence: i for i, sentence in enumerate(sentences)}
    return [
        torch.tensor([a for _, a in pairs]) @ vectors[[place[sentence] for sentence, _ in pairs]]
        for pairs in terms
    ]


def _fill(template: str, word: str, text: str) -> str:
    return template.replace("{text}", text).replace("{word}", word)
