"""A text encoder is given a vector in the place of a word, and goes on as it always does.

The vector is put where the encoder looks its words up, so that masks, the place of the end of the
text, padding and pooling are the encoder's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

# Each pair is two words of one token each in any vocabulary: a text with one and the other differs
# in one place.
PLACEHOLDERS = (("dog", "cat"), ("a", "b"))


def input_embedding(model: Any) -> nn.Embedding | None:
    """Where a model of open_clip looks its words up."""
    tower = getattr(model, "text", model)
    embedding = getattr(tower, "token_embedding", None)
    if embedding is None and hasattr(
        getattr(tower, "transformer", None), "get_input_embeddings"
    ):  # Hugging Face's
        embedding = tower.transformer.get_input_embeddings()
    return embedding if isinstance(embedding, nn.Embedding) else None


def place_of_word(
    tokenize: Callable[[Sequence[str]], Tensor], before: str, after: str
) -> tuple[Tensor, int]:
    """The template's tokens (1, L) with a placeholder, and where that is."""
    for words in PLACEHOLDERS:
        ids = tokenize([before + word + after for word in words])
        differ = (ids[0] != ids[1]).nonzero().flatten()
        if len(differ) == 1:
            return ids[:1], int(differ[0])
        if not len(differ):
            raise ValueError(
                f"the made-up word lies beyond what the text encoder reads: '{before[:60]}...' is too long"
            )
    raise ValueError(
        f"the made-up word must stand for itself in the template, got '{before}${after}'"
    )


@contextmanager
def with_word(embedding: nn.Embedding, word: Tensor, place: int) -> Iterator[None]:
    """While this lasts, what `embedding` finds for row i has `word[i]` at this place."""

    def put(module: nn.Module, inputs: Any, embeddings: Tensor) -> Tensor:
        embeddings = embeddings.clone()
        embeddings[:, place] = word.to(embeddings.dtype)
        return embeddings

    handle = embedding.register_forward_hook(put)
    try:
        yield
    finally:
        handle.remove()
