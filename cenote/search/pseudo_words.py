"""What SEARLE and Pic2Word have in common: an image became a word that no vocabulary has, and goes into a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..unit import unit
from .composition import ComposedQuery, Scorer, single
from .texts import encode, terms

if TYPE_CHECKING:
    from ..models.image_text import ImageText, Invertible

PHOTO = "a photo of $"  # in which the word is to mean the image
COMPOSED = "a {text} of $"  # a sketch of $: (D 4.4.2) for ImageNet-R and MiniDomainNet


def invertible(model: ImageText, method: str) -> Invertible:
    from ..models.image_text import Invertible

    if not isinstance(model, Invertible):
        raise ValueError(
            f"'{method}' puts a made-up word into a text, which '{model.name}' cannot read: use freedom"
        )
    return model


def check_template(template: str) -> None:
    if "{text}" not in template or template.count("$") != 1:
        raise ValueError(
            f"a template has {{text}}, and $ once, such as '{COMPOSED}', got '{template}'"
        )


def check_texts(queries: Sequence[ComposedQuery], method: str) -> None:
    """Before any word is made."""
    if any(not query.texts for query in queries):
        raise ValueError(f"'{method}' writes the text into a sentence: give words, not a vector")
    if any(all(weight < 0 for _, weight in terms(query)) for query in queries):
        raise ValueError(
            f"'{method}' needs a text that is wanted beside those that are not: use weicom"
        )


def composed(
    model: Invertible, queries: Sequence[ComposedQuery], words: Tensor, template: str
) -> list[Scorer]:
    """Sentences with each query's text and its image's word (Q, word_dim); of several texts the vectors are added.

    What is not wanted is subtracted without the word: else the image's subject would go with it.
    """
    rows = torch.zeros(len(queries), model.dim)
    sentences: dict[str, list[tuple[int, float]]] = {}
    for i, query in enumerate(queries):
        for text, weight in terms(query):
            if weight < 0:
                rows[i] += weight * encode(model, [text])[0]
                continue
            # A dollar of the user's own is no made-up word.
            sentences.setdefault(template.replace("{text}", text.replace("$", " ")), []).append(
                (i, weight)
            )
    with torch.no_grad():
        for sentence, asked in sentences.items():
            which = [i for i, _ in asked]
            found = model.embed_with_word(sentence, words[which]).float().cpu()
            rows.index_add_(
                0, torch.tensor(which), torch.tensor([[weight] for _, weight in asked]) * found
            )
    why = [
        {
            "sentences": [
                template.replace("{text}", text) for text, weight in terms(query) if weight > 0
            ]
        }
        for query in queries
    ]
    return [single(row, reason) for row, reason in zip(unit(rows), why, strict=True)]
