"""Vectors of texts, each encoded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..unit import unit
from .composition import ComposedQuery

if TYPE_CHECKING:
    from ..models.image_text import ImageText

MOST = 50_000  # texts that are remembered; the oldest go first
NOTHING = "what is wanted and what is not cancel each other out"


class TextCache:
    """What a model makes of texts: those it has not seen are encoded together."""

    def __init__(self, model: ImageText, most: int = MOST) -> None:
        # Without the model: this is kept as long as the model is, and must not be what keeps it.
        self.most, self.known = most, dict[str, Tensor]()
        self.dim, self.encoded = model.dim, 0

    def __call__(self, model: ImageText, texts: Sequence[str]) -> Tensor:
        """(N, D)."""
        if not texts:
            return torch.empty(0, self.dim)
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        fresh = dict[str, Tensor]()
        if new:
            with torch.no_grad():
                fresh = dict(zip(new, model.embed_texts(new).float().cpu().unbind(), strict=True))
            self.encoded += len(new)
        rows = [fresh[text] if text in fresh else self.known[text] for text in texts]
        self.known.update(fresh)
        for text in list(self.known)[: max(len(self.known) - self.most, 0)]:
            del self.known[text]
        return torch.stack(rows)


_memories: WeakKeyDictionary[object, TextCache] = WeakKeyDictionary()


def encode(model: ImageText, texts: Sequence[str]) -> Tensor:
    """(N, D) of unit length; what this model has encoded before is not encoded again."""
    if model not in _memories:
        _memories[model] = TextCache(model)
    return _memories[model](model, texts)


def terms(query: ComposedQuery) -> list[tuple[str, float]]:
    """Texts and their weights."""
    weights = query.weights or (1.0,) * len(query.texts)
    if len(weights) != len(query.texts):
        raise ValueError(
            f"{len(query.texts)} texts have {len(query.texts)} weights, got {len(weights)}"
        )
    pairs = list(zip(query.texts, weights, strict=True))
    if pairs and not any(
        sum(weight for other, weight in pairs if other == text) for text, _ in pairs
    ):
        raise ValueError(f"{NOTHING}: {', '.join(query.texts)}")
    return pairs


def text_vectors(model: ImageText, queries: Sequence[ComposedQuery]) -> Tensor:
    """(Q, D): a query's vector, or the sum of its terms' at unit length."""
    asked = [[] if query.text is not None else terms(query) for query in queries]
    flat = encode(model, [text for some in asked for text, _ in some])
    rows, start = list[Tensor](), 0
    for query, some in zip(queries, asked, strict=True):
        if query.text is not None:
            rows.append(query.text.float())
            continue
        vectors, start = flat[start : start + len(some)], start + len(some)
        one = len(some) == 1 and some[0][1] > 0
        total = torch.tensor([weight for _, weight in some]) @ vectors
        if total.norm() <= 1e-5 * sum(
            abs(weight) for _, weight in some
        ):  # "Dog" and "dog": rounding is left
            raise ValueError(f"{NOTHING}: {', '.join(query.texts)}")
        rows.append(vectors[0] if one else unit(total))
    return torch.stack(rows) if rows else torch.empty(0, model.dim)


def image_vectors(queries: Sequence[ComposedQuery]) -> Tensor:
    """(Q, D)."""
    return torch.stack([query.image for query in queries if query.image is not None])
