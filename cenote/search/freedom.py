"""FreeDom (D 4.2-4.17): an image becomes words by way of its neighbours, and words and text one vector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..options import check_number
from .composition import ComposedQuery, Database, Scorer, single
from .texts import encode, image_vectors, terms

if TYPE_CHECKING:
    from .methods import CompositionContext
    from .words import WordMemory

K, N, M = 20, 7, 7  # proxies, words of each, words kept
FUSIONS = ("word", "early", "late")
WEIGHTS = ("frequency", "uniform")
MEMORIES = ("database", "none")
TEMPLATE = "{word} {text}"  # w + t, with a space between
Word = TypeVar("Word", bound=Hashable)


def frequent_words(
    lists_of_words: Iterable[Iterable[Word]], m: int = M
) -> tuple[list[Word], list[float]]:
    """The m most frequent words of all lists, and count / largest count of each.

    Of equally frequent words the first seen, scanning the lists (proxies in order of similarity) and in each its words
    (in order of similarity). Fewer words than m give fewer.
    """
    check_number("m", m, whole=True, least=0)
    counts = Counter(chain.from_iterable(lists_of_words)).most_common(
        m
    )  # of equals the first seen, as documented
    return [word for word, _ in counts], [count / counts[0][1] for _, count in counts]


class InvertedImage(NamedTuple):
    """An image in words."""

    words: list[str]
    frequencies: list[float]
    proxies: list[int]  # rows of the visual memory, best first; the query itself comes before them


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
    """All variants: `fusion` word (4.7), early (4.9, 4.15) or late (4.11, 4.16, 4.17); no `memory`: no expansion.

    `memory` is "database", "none" or another Database; `template` puts {word} and {text} together; `injected` adds a
    word of weight 1 to each query (Table 4.6).
    """
    _check_queries(queries, injected)
    assert context.words is not None  # compose sees to it
    found = invert(queries, context, k, n, m, memory)
    named = [_named(inverted, weights) for inverted in found]
    for pairs, word in zip(named, injected or [None] * len(named), strict=True):
        pairs += [] if word is None else [(word, 1.0)]
    if fusion == "word":
        named = [pairs[:1] for pairs in named]
    joined = [[(" ".join(word for word, _ in pairs), 1.0)] for pairs in named]  # w_1 + ... + w_m
    vectors = _fused(
        [terms(query) for query in queries],
        joined if fusion == "early" else named,
        context,
        template,
    )
    asked = {"k": k, "n": n, "m": m, "fusion": fusion}
    return [
        single(v, _why(one, pairs, asked))
        for v, one, pairs in zip(vectors, found, named, strict=True)
    ]


def invert(
    queries: Sequence[ComposedQuery],
    context: CompositionContext,
    k: int = K,
    n: int = N,
    m: int = M,
    memory: Database | str = "database",
) -> list[InvertedImage]:
    """phi_V (4.6) without a memory: the m nearest words, all of frequency 1; else phi+ (4.13, 4.14)."""
    assert context.words is not None
    if isinstance(memory, str):
        base, inside = (
            (context.database, [q.inside for q in queries])
            if memory == "database"
            else (None, None)
        )
    else:
        base, inside = memory, None  # rows of the database are not rows of another memory
    images, inside = image_vectors(queries), inside or [None] * len(queries)
    # An image that is asked with several texts is inverted once.
    keys = list(zip((image.numpy().tobytes() for image in images), inside, strict=True))
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    unique, rows = images[list(first.values())], [inside[place] for place in first.values()]
    if base is None:
        own = context.words.nearest(unique, m).tolist() if m else [[]] * len(unique)
        named = [
            InvertedImage([context.words.words[i] for i in ids], [1.0] * len(ids), [])
            for ids in own
        ]
    else:
        named = _expanded(unique, rows, base, context.words, k, n, m)
    by_key = dict(zip(first, named, strict=True))
    return [by_key[key] for key in keys]


def _expanded(
    images: Tensor,
    inside: list[int | None],
    memory: Database,
    words: WordMemory,
    k: int,
    n: int,
    m: int,
) -> list[InvertedImage]:
    """The query and its k - 1 nearest (4.13) give n words each (4.14), of which the m most frequent stay."""
    own = words.nearest(images, n).tolist()
    rows = memory.nearest(images, min(k, len(memory)))[1].tolist()
    proxies = [
        [row for row in some if row != i][: k - 1] for some, i in zip(rows, inside, strict=True)
    ]
    near = torch.tensor(sorted({row for some in proxies for row in some}), dtype=torch.long)
    by_row = dict(zip(near.tolist(), words_of(memory, near, words, n), strict=True))
    found = []
    for first, some in zip(own, proxies, strict=True):
        ids, frequencies = frequent_words([first, *(by_row[row] for row in some)], m)
        found.append(InvertedImage([words.words[i] for i in ids], frequencies, some))
    return found


def words_of(memory: Database, rows: Tensor, words: WordMemory, n: int) -> list[list[int]]:
    """The n nearest words of these images: stored ones if enough of them are, for they depend on the image alone."""
    if not len(rows):
        return []
    stored = memory.words(rows)
    if stored is not None and stored.shape[1] >= min(n, len(words.words)):
        return stored[:, :n].tolist()
    return words.nearest(memory.vectors(rows), n).tolist()


def _named(inverted: InvertedImage, weights: str) -> list[tuple[str, float]]:
    a = inverted.frequencies if weights == "frequency" else [1.0] * len(inverted.words)
    return list(zip(inverted.words, a, strict=True))


def _fused(
    texts: list[list[tuple[str, float]]],
    named: list[list[tuple[str, float]]],
    context: CompositionContext,
    template: str,
) -> list[Tensor]:
    """sum_i a_i g(w_i + t) (4.12): by linearity one vector, not made of unit length. Of several texts the sum.

    What is not wanted is subtracted without the image's words: g("dog grass") would take the dog away, too.
    """
    parts = [
        [(_filled(template, word, text), a * b) for text, b in some if b >= 0 for word, a in pairs]
        + [(text, b * sum(a for _, a in pairs)) for text, b in some if b < 0]
        for some, pairs in zip(texts, named, strict=True)
    ]
    names = list(dict.fromkeys(text for part in parts for text, _ in part))
    vectors, place = encode(context.model, names), {text: i for i, text in enumerate(names)}
    weighed = (
        (torch.tensor([a for _, a in part]), [place[text] for text, _ in part]) for part in parts
    )
    return [a @ vectors[rows] for a, rows in weighed]


def _filled(template: str, word: str, text: str) -> str:
    return template.replace("{text}", text).replace("{word}", word)


def _why(
    inverted: InvertedImage, pairs: list[tuple[str, float]], asked: dict[str, Any]
) -> dict[str, Any]:
    named = [{"word": word, "weight": weight} for word, weight in pairs]
    return {"words": named, "proxies": inverted.proxies, **asked}


def check_freedom(
    k: int, n: int, m: int, fusion: str, weights: str, memory: Database | str, template: str,
    injected: Sequence[str | None] | None,
) -> None:  # fmt: skip
    """Options alone."""
    for name, value in (("k", k), ("n", n)):
        check_number(name, value, whole=True, least=1)
    check_number("m", m, whole=True, least=0 if injected else 1)
    if fusion not in FUSIONS:
        raise ValueError(f"fusion is {', '.join(FUSIONS)}, got '{fusion}'")
    if weights not in WEIGHTS:
        raise ValueError(f"weights are {' or '.join(WEIGHTS)}, got '{weights}'")
    if isinstance(memory, str) and memory not in MEMORIES:
        raise ValueError(
            f"the visual memory is {', '.join(MEMORIES)} or a database, got '{memory}'"
        )
    if "{word}" not in template or "{text}" not in template:
        raise ValueError(
            f"a template holds {{word}} and {{text}}, such as 'a {{text}} of {{word}}', got '{template}'"
        )


def _check_queries(queries: Sequence[ComposedQuery], injected: Sequence[str | None] | None) -> None:
    if injected is not None and len(injected) != len(queries):
        raise ValueError(
            f"{len(queries)} queries have {len(queries)} injected words, got {len(injected)}"
        )
    if any(not query.texts for query in queries):
        raise ValueError("FreeDom composes words: give the query's texts, not a vector alone")
    if any(all(weight < 0 for _, weight in terms(query)) for query in queries):
        raise ValueError(
            "FreeDom puts the image's words before a text that is wanted: give one, or use weicom"
        )
