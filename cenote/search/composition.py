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

MAX_TEXTS = 50_000  # in the cache of a model; the oldest are dropped first


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


# Vectors by text, of each model as long as it exists.
_text_caches: WeakKeyDictionary[object, dict[str, Tensor]] = WeakKeyDictionary()


def encode_texts(model: ImageText, texts: Sequence[str]) -> Tensor:
    """Return vectors (N, D) of unit length; texts that are not cached are encoded together."""
    if not texts:
        return torch.empty(0, model.dim)
    cached = _text_caches.setdefault(model, {})
    missing = [text for text in dict.fromkeys(texts) if text not in cached]
    if missing:
        with torch.no_grad():
            encoded = model.embed_texts(missing).float().cpu()
        cached |= zip(missing, encoded.unbind(), strict=True)
    vectors = torch.stack([cached[text] for text in texts])
    for text in list(cached)[: max(len(cached) - MAX_TEXTS, 0)]:
        del cached[text]
    return vectors


def weighted_texts(query: ComposedQuery) -> list[tuple[str, float]]:
    """Return the query's texts with their weights."""
    weights = query.weights or (1.0,) * len(query.texts)
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
    """Return (Q, D): a query's text vector, or its wanted minus its unwanted texts, normalized."""
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
            rows.append(
                unit(_without(weights.clamp(min=0) @ vectors, -weights.clamp(max=0) @ vectors))
            )
    return torch.stack(rows) if rows else torch.empty(0, model.dim)


def _without(wanted: Tensor, unwanted: Tensor) -> Tensor:
    """Subtract from the wanted vector (D,) what the unwanted one has beside it.

    "Puppy" is mostly "dog": subtracting all of it from "dog" would leave little of the dog.
    """
    direction = unit(wanted)
    return wanted - (unwanted - (unwanted @ direction).clamp(min=0) * direction)


def image_vectors(queries: Sequence[ComposedQuery]) -> Tensor:
    """Return the image vectors (Q, D)."""
    return torch.stack([query.image for query in queries if query.image is not None])


class QueryStatistics(NamedTuple):
    """Text and image vectors of queries, and their similarities to the whole database."""

    vectors: Tensor  # (Q, 2, D): text, image
    means: Tensor  # (Q, 2) of the similarities, in double precision
    deviations: Tensor  # (Q, 2)


def query_statistics(
    queries: Sequence[ComposedQuery], context: CompositionContext
) -> QueryStatistics:
    vectors = torch.stack([text_vectors(context.model, queries), image_vectors(queries)], 1)
    means, deviations = context.database.moments().statistics(vectors.flatten(0, 1))
    return QueryStatistics(vectors, means.view(-1, 2), deviations.view(-1, 2))
