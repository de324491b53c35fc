"""A small CLIP of our own: any backbone with any pool, and a small text transformer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...backbones.preprocessing import Transform
from ...unit import unit
from ..pooled import PooledModel
from .interface import check_word, checked, identity_of, in_batches, parts_of
from .made_up_word import place_of_word, with_word
from .text_tower import TextTower
from .words import Words


class SmallClip(nn.Module):
    """`image` has an embedding of as many numbers as `text` gives. `cenote clip` trains it.

    `things`: what the things of its training images are called, the words by which FreeDom can
    describe an image.
    """

    def __init__(
        self,
        image: PooledModel,
        text: TextTower,
        words: Words,
        name: str = "clip",
        things: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.image, self.text, self.words, self.name, self.things = (
            image,
            text,
            words,
            name,
            list(things),
        )
        self.scale = nn.Parameter(
            torch.tensor(1 / 0.07).log()
        )  # of similarities in training, as CLIP's begins
        self.dim, self.word_dim = image.vector_dim, text.embedding.embedding_dim

    @property
    def identity(self) -> str:
        name = f"clip/{self.image.config['backbone']}/{self.image.config['pool']}"
        return identity_of(
            name, self.image, self.text, self.words.vocabulary, self.image.backbone.preprocessing
        )

    def transform(self) -> Transform:
        return self.image.backbone.preprocessing.transform()

    @torch.no_grad()
    def embed_images(self, pixels: Tensor) -> Tensor:
        return unit(self.image.embed(pixels))

    @torch.no_grad()
    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        device = self.scale.device
        rows = [
            unit(self.text(self.words.encode(some).to(device)))
            for some in in_batches(checked(texts))
        ]
        return torch.cat(rows) if rows else torch.empty(0, self.dim, device=device)

    def unknown(self, text: str) -> list[str]:
        """What training never said of an image: its answers to that are guesses."""
        return self.words.unknown(text)

    def embed_with_word(self, template: str, word: Tensor) -> Tensor:
        check_word(word, self.word_dim)
        ids, place = place_of_word(self.words.encode, *parts_of(template))
        with with_word(self.text.embedding, word, place):
            return unit(self.text(ids.to(word.device).expand(len(word), -1)))
