"""What an image-text model is. All vectors are float32, rows of length one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from ...backbones.preprocessing import Transform

WORD = "$"  # stands for a made-up word in a template: "a photo of $"
BATCH = 256  # texts at a time


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

    def transform(self) -> Transform:
        """A PIL image -> (3, H, W)."""

    def embed_images(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, dim)."""

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """(N, dim), in batches; nothing is kept."""


@runtime_checkable
class Invertible(ImageText, Protocol):
    """A model whose text encoder can be given a word that no vocabulary has."""

    @property
    def word_dim(self) -> int:
        """Numbers of a word, where the text encoder looks its words up."""

    def embed_with_word(self, template: str, word: Tensor) -> Tensor:
        """The vectors (B, word_dim) in the place of `$` -> (B, dim), with gradients to the word."""


def checked(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):  # would be taken letter by letter
        raise ValueError(f"texts is a list of texts, got the text '{texts:.40}'")
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise ValueError(
                f"a text to be embedded has at least one character that is no space, got {text!r:.40}"
            )
    return list(texts)


def in_batches(texts: Sequence[str], size: int = BATCH) -> Iterator[Sequence[str]]:
    return (texts[start : start + size] for start in range(0, len(texts), size))


def parts_of(template: str) -> tuple[str, str]:
    """What stands before and after the made-up word."""
    if template.count(WORD) != 1:
        raise ValueError(
            f"a template has the sign {WORD} once, such as 'a photo of {WORD}', got '{template}'"
        )
    before, _, after = template.partition(WORD)
    return before, after


def check_word(word: Tensor, dim: int) -> None:
    if word.ndim != 2 or word.shape[1] != dim:
        raise ValueError(f"made-up words are rows of {dim} numbers here, got {tuple(word.shape)}")


def identity_of(name: str, *parts: nn.Module | Any) -> str:
    """The name and a digest: of modules their tensors, of anything else its repr."""
    state = blake2b(digest_size=16)
    for text in parts:
        if not isinstance(text, nn.Module):
            state.update(repr(text).encode())
            continue
        for key, value in text.state_dict().items():  # one at a time: there are models of gigabytes
            state.update(key.encode())
            state.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return f"{name} {state.hexdigest()}"
