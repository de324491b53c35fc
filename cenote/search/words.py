"""The text memory (D 4.3): words and their vectors, kept on disk for each model."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data.digests import digest_of
from ..data.files import write_atomically
from ..predict.feature_cache import cache_folder
from .database import nearest_rows

if TYPE_CHECKING:
    from ..models.image_text import ImageText

BATCH = 1024  # words encoded at a time
HEADERS = {
    "name",
    "word",
    "label",
    "class",
    "class_name",
    "object_name",
    "displayname",
}  # of a CSV's first line


class WordMemory(NamedTuple):
    """Words and their vectors (N, D) of unit length, encoded raw, without a template (4.3)."""

    words: list[str]
    vectors: Tensor

    def nearest(self, images: Tensor, n: int) -> Tensor:
        """(B, D) -> (B, n): places of the n nearest words, best first (4.4)."""
        return nearest_rows(images, self.vectors, n)[1]

    @property
    def digest(self) -> str:
        """Of the list: ids stored with one list mean nothing in another."""
        return words_digest(self.words)


def words_digest(words: Sequence[str]) -> str:
    return digest_of("\n".join(words).encode()).hex()


def load_words(source: str | Path | None = None, model: ImageText | None = None) -> list[str]:
    """A word list, each word once: a text file with one a line, a CSV whose last column they are, or ImageNet-21k's.

    Without a source: what the `model` was taught to call things, if it says so, as a small CLIP does, which has read no
    other words; else the first name of each class of ImageNet-21k, as timm has them.
    """
    if source is None:
        return _once(getattr(model, "things", ())) or _imagenet()
    path = Path(source)
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            # Only commas of a CSV separate: in a text file they belong to the word.
            table = path.suffix.lower() == ".csv"
            rows = list(csv.reader(file)) if table else [[line] for line in file]
    except FileNotFoundError:
        raise ValueError(
            f"no word list {path}: give a text file with one word a line, or a CSV"
        ) from None
    except (UnicodeDecodeError, csv.Error, IsADirectoryError) as error:
        raise ValueError(f"{path} is no word list: {error}") from None
    words = _once(row[-1] for row in rows if row)
    if table and words and words[0].casefold() in HEADERS:
        words = words[1:]
    if not words:
        raise ValueError(f"{path} holds no word: give a text file with one word a line, or a CSV")
    return words


def _imagenet() -> list[str]:
    from timm.data.imagenet_info import ImageNetInfo

    return _once(names.split(",")[0] for names in ImageNetInfo("imagenet21k").label_descriptions())


def subjects() -> list[str]:
    """All names of ImageNet's 1,000 classes: what things are called."""
    from timm.data.imagenet_info import ImageNetInfo

    return _once(
        name
        for names in ImageNetInfo("imagenet-1k").label_descriptions()
        for name in names.split(",")
    )


def _once(words: Iterable[str]) -> list[str]:
    """Stripped, in order; of spellings that differ in case alone the first."""
    seen = dict[str, str]()
    for word in words:
        plain = " ".join(word.split())
        if plain:
            seen.setdefault(plain.casefold(), plain)
    return list(seen.values())


def remember_words(
    model: ImageText, words: Sequence[str], folder: Path | None = None
) -> WordMemory:
    """The words with their vectors, read from the cache if this model has encoded this list before."""
    words = list(words)
    if not words:
        raise ValueError("a text memory needs at least one word")
    name = digest_of(model.identity.encode(), "\n".join(words).encode()).hex()
    path = (folder or cache_folder() / "words") / f"{name}.npy"
    kept = _kept(path, (len(words), model.dim))
    if kept is not None:
        return WordMemory(words, kept)
    with torch.no_grad():
        parts = [
            model.embed_texts(words[i : i + BATCH]).float().cpu()
            for i in range(0, len(words), BATCH)
        ]
    vectors = torch.cat(parts)
    with write_atomically(path) as temporary:
        np.save(temporary, vectors.numpy())
    return WordMemory(words, vectors)


def _kept(path: Path, shape: tuple[int, int]) -> Tensor | None:
    """None also where the file is broken: it is written again."""
    try:
        found = np.load(path, allow_pickle=False)
        os.utime(path)
    except (OSError, ValueError, EOFError):
        return None
    return torch.from_numpy(found) if found.shape == shape and found.dtype == np.float32 else None
