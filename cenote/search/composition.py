"""Composed queries, the vectors of their texts, and the scorers that methods make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..unit import unit
from .database import Database

if TYPE_CHECKING:
    from ..models.image_text import ImageText
    from .words import WordMemory

MAX_TEXTS = 50_000  # texts in a cache; the oldest are dropped first


class ComposedQuery(NamedTuple):
    """An image, texts, or both, as vectors and words."""

    image: Tensor | None = None  # (D,) of unit length
    texts: tuple[str, ...] = ()  # one in the papers; the vectors of several are added
    weights: tuple[float, ...] | None = None  # of the texts, negative for unwanted; None: all 1
    text: Tensor | None = None  # (D,) of unit length: replaces the model's vector of `texts`
    inside: int | None = None  # row of the query image, if the database holds it


class CompositionContext(NamedTuple):
    """What a method may use beside its queries."""

    database: Database
    model: ImageText
    words: WordMemory | None = None


class Scorer(NamedTuple):
    """Score images against a query: linear in the image, up to one small function.

    An image x has the similarities `vectors @ x + offsets`.
    """

    vectors: Tensor  # (V, D)
    offsets: Tensor  # (V,)
    combine: Callable[[Tensor], Tensor]  # similarities (V, N) -> scores (N,)
    # (D,): its nearest images are the candidates for `combine`; a single vector ranks by itself
    direction: Tensor
    why: Mapping[str, Any]  # words, weights, statistics: for people and JSON

    def scores(self, images: Tensor) -> Tensor:
        """Return the scores (N,) of image vectors (N, D)."""
        return self.of_similarities(self.vectors.to(images) @ images.T)

    def of_similarities(self, similarities: Tensor) -> Tensor:
        """Return the scores (N,) for dot products (V, N) of `vectors` and images."""
        return self.combine(similarities + self.offsets.to(similarities.device)[:, None])


def single(vector: Tensor, why: Mapping[str, Any] | None = None, offset: float = 0.0) -> Scorer:
    """Return the scorer of one vector: a nearest-neighbour search is the whole ranking."""
    return Scorer(vector[None], vector.new_tensor([offset]), _first, vector, why or {})


def _first(similarities: Tensor) -> Tensor:
    return similarities[0]


class TextCache:
    """Vectors of the texts that a model has encoded.

    It holds no reference to the model: it is stored under a weak reference to it.
    """

    def __init__(self, dim: int, max_texts: int = MAX_TEXTS) -> None:
        self.dim, self.max_texts, self.encoded = dim, max_texts, 0
        self.cached: dict[str, Tensor] = {}

    def encode(self, model: ImageText, texts: Sequence[str]) -> Tensor:
        """Return vectors (N, D); texts that are not cached are encoded together."""
        if not texts:
            return torch.empty(0, self.dim)
        missing = [text for text in dict.fromkeys(texts) if text not in self.cached]
        vectors = {text: self.cached[text] for text in texts if text in self.cached}
        if missing:
            with torch.no_grad():
                encoded = model.embed_texts(missing).float().cpu()
            vectors |= zip(missing, encoded.unbind(), strict=True)
            self.cached |= {text: vectors[text] for text in missing}
            self.encoded += len(missing)
            for text in list(self.cached)[: max(len(self.cached) - self.max_texts, 0)]:
                del self.cached[text]
        return torch.stack([vectors[text] for text in texts])


_caches: WeakKeyDictionary[object, TextCache] = WeakKeyDictionary()


def encode_texts(model: ImageText, texts: Sequence[str]) -> Tensor:
    """Return vectors (N, D) of unit length; a model encodes each text once."""
    if model not in _caches:
        _caches[model] = TextCache(model.dim)
    return _caches[model].encode(model, texts)


def weighted_texts(query: ComposedQuery) -> list[tuple[str, float]]:
    """Return the query's texts with their weights."""
    weights = query.weights or (1.0,) * len(query.texts)
    if len(weights) != len(query.texts):
        raise ValueError(f"{len(query.texts)} texts need as many weights, got {len(weights)}")
    pairs = list(zip(query.texts, weights, strict=True))
    totals = dict.fromkeys(query.texts, 0.0)
    for text, weight in pairs:
        totals[text] += weight
    if pairs and not any(totals.values()):
        raise _cancelled(query)
    return pairs


def _cancelled(query: ComposedQuery) -> ValueError:
    return ValueError(f"wanted and unwanted texts cancel each other: {', '.join(query.texts)}")


def text_vectors(model: ImageText, queries: Sequence[ComposedQuery]) -> Tensor:
    """Return (Q, D): a query's text vector, or the weighted sum of its texts at unit length."""
    pairs = [[] if query.text is not None else weighted_texts(query) for query in queries]
    encoded = encode_texts(model, [text for terms in pairs for text, _ in terms])
    blocks = encoded.split([len(terms) for terms in pairs])
    rows = []
    for query, terms, vectors in zip(queries, pairs, blocks, strict=True):
        if query.text is not None:
            rows.append(query.text.float())
        elif len(terms) == 1 and terms[0][1] > 0:
            rows.append(vectors[0])
        else:
            weights = torch.tensor([weight for _, weight in terms])
            total = weights @ vectors
            if total.norm() <= 1e-5 * weights.abs().sum():  # "Dog" less "dog": only rounding
                raise _cancelled(query)
            rows.append(unit(total))
    return torch.stack(rows) if rows else torch.empty(0, model.dim)


def image_vectors(queries: Sequence[ComposedQuery]) -> Tensor:
    """Return the image vectors (Q, D)."""
    return torch.stack([query.image for query in queries if query.image is not None])
