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
    injected: Sequence[str | None] | str | None = None,
) -> list[Scorer]:
    """Compose by FreeDom or one of its variants.

    `fusion` is word [Dissertation Eq. 4.7], early [4.9, 4.15] or late [4.11, 4.16, 4.17].
    `weights` are frequency or uniform. `memory` is "database", "none" (no expansion) or another
    Database. `template` combines {word} and {text}. `injected` adds a word of weight 1 to each
    query [Table 4.6]. `cenote evaluate-search` replaces memory "other" and "both", and injected
    "class" and "domain", which only it knows.
    """
    if isinstance(injected, str) or memory in ("other", "both"):
        raise ValueError(
            "memory=other, memory=both and injected=... are for cenote evaluate-search"
        )
    inverted = invert(queries, context, k, n, m, memory)
    named = list[WeightedWords]()
    for i, image in enumerate(inverted):
        a = image.frequencies if weights == "frequency" else [1.0] * len(image.words)
        pairs = list(zip(image.words, a, strict=True))
        if injected is not None and (word := injected[i]) is not None:
            pairs.append((word, 1.0))
        named.append(pairs[:1] if fusion == "word" else pairs)
    fused = named
    if fusion == "early":  # w_1 + ... + w_m
        fused = [[(" ".join(word for word, _ in pairs), 1.0)] for pairs in named]
    texts = [weighted_texts(query) for query in queries]
    settings = {"k": k, "n": n, "m": m, "fusion": fusion}
    scorers = []
    vectors = late_fusion(texts, fused, context, template)
    for vector, image, pairs in zip(vectors, inverted, named, strict=True):
        words = [{"word": word, "weight": weight} for word, weight in pairs]
        scorers.append(single(vector, {"words": words, "proxies": image.proxies, **settings}))
    return scorers


def frequent_words(
    lists_of_words: Iterable[Iterable[Word]], m: int = M
) -> tuple[list[Word], list[float]]:
    """Return the m most frequent words of all lists, and count / largest count of each.

    Ties keep the word that comes first, scanning the lists (proxies by similarity) and in each
    its words (by similarity). Fewer different words than m are all returned.
    """
    counts = Counter(chain.from_iterable(lists_of_words)).most_common(m)  # ties in order of input
    return [word for word, _ in counts], [count / counts[0][1] for _, count in counts]


def invert(
    queries: Sequence[ComposedQuery],
    context: CompositionContext,
    k: int,
    n: int,
    m: int,
    memory: Database | str,
) -> list[InvertedImage]:
    """Return the words of each query image.

    phi+ [Dissertation Eq. 4.13, 4.14]: n words of the query and of its k - 1 nearest images in
    the memory, and the m most frequent of all. Without a memory phi_V [Eq. 4.6]: the m nearest
    words, all of frequency 1.
    """
    words = context.words
    assert words is not None  # checked by compose_all
    if memory == "none":
        k, n = 1, m
    database = context.database if isinstance(memory, str) else memory
    # Rows of the database are not rows of another memory.
    inside = [query.inside if database is context.database else None for query in queries]
    images = image_vectors(queries)
    # An image that is combined with several texts is inverted once.
    keys = list(zip((image.numpy().tobytes() for image in images), inside, strict=True))
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    images = images[list(first.values())]
    nearest: list[list[int]] = [[] for _ in first]
    if k > 1:
        nearest = database.nearest(images, k)[1].tolist()
    proxies = [
        [row for row in rows if row != query_row][: k - 1]
        for rows, (_, query_row) in zip(nearest, first, strict=True)
    ]
    rows = torch.tensor(sorted({row for group in proxies for row in group}), dtype=torch.long)
    words_of_row = dict(zip(rows.tolist(), _words_of_rows(database, rows, words, n), strict=True))
    inverted = dict[tuple[bytes, int | None], InvertedImage]()
    query_words = words.nearest(images, n).tolist()
    for key, own, group in zip(first, query_words, proxies, strict=True):
        ids, frequencies = frequent_words([own, *(words_of_row[row] for row in group)], m)
        inverted[key] = InvertedImage([words.words[i] for i in ids], frequencies, group)
    return [inverted[key] for key in keys]


def _words_of_rows(memory: Database, rows: Tensor, words: WordMemory, n: int) -> list[list[int]]:
    """Return the ids of the n nearest words of these images, from the index if it stores n."""
    if not len(rows):
        return []
    stored = memory.words(rows)
    if stored is None or stored.shape[1] < min(n, len(words.words)):
        stored = words.nearest(memory.vectors(rows), n)
    return stored[:, :n].tolist()


def late_fusion(
    texts: list[WeightedWords],
    named: list[WeightedWords],
    context: CompositionContext,
    template: str,
) -> list[Tensor]:
    """Compute sum_i a_i g(w_i + t) [Dissertation Eq. 4.12]; several texts are added.

    By linearity it is one vector, which is not normalized. An unwanted text is subtracted
    without the image's words: g("dog grass") would subtract the dog as well.
    """

    def fill(word: str, text: str) -> str:
        return template.replace("{text}", text).replace("{word}", word)

    terms = [
        [(fill(word, text), a * b) for text, b in pairs if b >= 0 for word, a in words]
        + [(text, b * sum(a for _, a in words)) for text, b in pairs if b < 0]
        for pairs, words in zip(texts, named, strict=True)
    ]
    sentences = [sentence for pairs in terms for sentence, _ in pairs]
    blocks = encode_texts(context.model, sentences).split([len(pairs) for pairs in terms])
    return [
        torch.tensor([a for _, a in pairs]) @ vectors
        for pairs, vectors in zip(terms, blocks, strict=True)
    ]
