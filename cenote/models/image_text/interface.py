"""What an image-text model is, and what its text encoders share: batches of texts, and made-up
words. All vectors are float32, rows of length one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from ...backbones.preprocessing import Transform
from ...unit import unit
from ..pooled import PooledModel

WORD = "$"  # stands for a made-up word in a template: "a photo of $"
BATCH = 256  # texts at a time
# Each pair is two words of one token each in any vocabulary: a text with one and the other differs
# in one place.
PLACEHOLDERS = (("dog", "cat"), ("a", "b"))
Box = tuple[float, float, float, float]
Embed = Callable[[Tensor], Tensor]
EmbedTexts = Callable[[Sequence[str]], Tensor]


@runtime_checkable
class ImageText(Protocol):
    @property
    def name(self) -> str:
        """How a person says it."""

    @property
    def identity(self) -> str:
        """The name and the digest of its weights: vectors of two identities are not compared."""

    @property
    def dim(self) -> int:
        """Numbers of a vector."""

    def transform(self, scaled_decoding: bool = False) -> Transform:
        """A PIL image -> (3, H, W), for images that are decoded at full size, or at a fraction."""

    def embed_images(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, dim)."""

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """(N, dim), in batches; nothing is kept."""


@runtime_checkable
class ImageNetwork(ImageText, Protocol):
    """A model that computes the vectors of images from the output of one frozen network."""

    @property
    def image_network(self) -> nn.Module:
        """Pixels (B, 3, H, W) -> its output."""

    def embed_output(self, output: Any) -> Tensor:
        """The output of the network -> (B, dim)."""


@runtime_checkable
class LocalNetwork(ImageNetwork, Protocol):
    """A model with features of positions, by which results can be ranked again."""

    @property
    def local_network(self) -> nn.Module:
        """Pixels (B, 3, H, W) -> its output."""

    def embed_local_output(self, output: Any) -> tuple[Tensor, Tensor]:
        """The output of `local_network` -> vectors (B, dim), features (B, D, h, w)."""

    def visible_box(self, width: int, height: int) -> Box:
        """The part of an image that the network sees: x0, y0, x1, y1 in pixels."""


@runtime_checkable
class PositionEncoder(ImageText, Protocol):
    """A model that can give every position of an image a vector."""

    def position_encoder(self) -> tuple[PooledModel, Embed, EmbedTexts]:
        """The image encoder, its `classify(features)` (B, D) -> (B, dim) of any length, and texts."""


@runtime_checkable
class Invertible(ImageText, Protocol):
    """A model whose text encoder can be given a word that no vocabulary has."""

    @property
    def word_dim(self) -> int:
        """Numbers of a word, where the text encoder looks its words up."""

    def embed_with_word(self, template: str, word: Tensor) -> Tensor:
        """The vectors (B, word_dim) in the place of `$` -> (B, dim), with gradients to the word."""


@runtime_checkable
class Vocabulary(ImageText, Protocol):
    """A model that can say which texts it knows."""

    @property
    def known_names(self) -> Sequence[str]:
        """Names of what it can recognize."""

    @property
    def spellings(self) -> Sequence[str]:
        """All names of texts that it knows, in lower case."""

    def familiarity(self, text: str) -> float:
        """How much of the text it knows, 0 to 1."""

    def unknown_words(self, text: str) -> Sequence[str]:
        """Words of the text that it knows nothing about."""


@runtime_checkable
class ClassSpace(ImageText, Protocol):
    """A model that places images between the vectors of classes."""

    def highest_cosine(self, text: Tensor) -> float:
        """The cosine of the text (dim,) to an image that is certainly of the nearest class."""

    def cosine_scale(self, text: str) -> float:
        """What makes cosines of a text comparable with those of others: above 1 for "dog", which is
        a sum of many classes and has a low cosine with each of them."""


def identity_of(name: str, *parts: nn.Module | Any) -> str:
    """The name and a digest: of modules their tensors, of anything else its repr."""
    state = blake2b(digest_size=16)
    for part in parts:
        if not isinstance(part, nn.Module):
            state.update(repr(part).encode())
            continue
        for key, value in part.state_dict().items():  # one at a time: there are models of gigabytes
            state.update(key.encode())
            state.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return f"{name} {state.hexdigest()}"


def encode_texts(
    encode: Callable[[list[str]], Tensor], texts: Sequence[str], empty: Callable[[], Tensor]
) -> Tensor:
    """Vectors of length one (N, dim), a batch of texts at a time; `empty()` for no text."""
    if isinstance(texts, str):  # would be taken letter by letter
        raise ValueError(f"texts is a list of texts, got the text '{texts:.40}'")
    for text in texts:
        if not text.strip():
            raise ValueError(f"a text to embed has at least one character, got {text!r:.40}")
    starts = range(0, len(texts), BATCH)
    rows = [unit(encode(list(texts[start : start + BATCH]))) for start in starts]
    return torch.cat(rows or [empty()])


# A text encoder is given a vector in the place of a word. The vector is put where the encoder looks
# its words up, so that masks, the place of the end of the text, padding and pooling are its own.


def encode_with_word(
    encode: Callable[[Tensor], Tensor],
    tokenize: Callable[[list[str]], Tensor],
    embedding: nn.Embedding,
    template: str,
    word: Tensor,
) -> Tensor:
    """The vectors of the template with the rows of `word` (B, word_dim) in the place of `$`."""
    if template.count(WORD) != 1:
        raise ValueError(
            f"a template has the sign {WORD} once, such as 'a photo of {WORD}', got '{template}'"
        )
    ids, place = _place_of_word(tokenize, template)
    with _with_word(embedding, word, place):
        ids = ids.to(embedding.weight.device).expand(len(word), -1)
        return unit(encode(ids)).to(word.device)


def _place_of_word(tokenize: Callable[[list[str]], Tensor], template: str) -> tuple[Tensor, int]:
    """The template's tokens (1, L) with a placeholder, and where that is."""
    for words in PLACEHOLDERS:
        ids = tokenize([template.replace(WORD, word) for word in words])
        differ = (ids[0] != ids[1]).nonzero().flatten()
        if len(differ) == 1:
            return ids[:1], int(differ[0])
    raise ValueError(
        "the made-up word must stand for itself in the template, which must not be too long for "
        f"the text encoder, got '{template}'"
    )


@contextmanager
def _with_word(embedding: nn.Embedding, word: Tensor, place: int) -> Iterator[None]:
    """While this lasts, what `embedding` finds for row i has `word[i]` at this place."""

    def put(module: nn.Module, inputs: Any, embeddings: Tensor) -> Tensor:
        embeddings = embeddings.clone()
        embeddings[:, place] = word.to(embeddings)
        return embeddings

    handle = embedding.register_forward_hook(put)
    try:
        yield
    finally:
        handle.remove()
