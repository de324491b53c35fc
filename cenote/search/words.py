"""The text memory [Dissertation Sec. 4.3]: words and their vectors, cached on disk per model."""

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
from ..predict.cache_folder import cache_folder
from .database import nearest_rows

if TYPE_CHECKING:
    from ..models.image_text import ImageText

BATCH = 1024  # words encoded at a time
MAX_WORD = 1000  # characters
CSV_HEADERS = {"name", "word", "label", "class", "class_name", "object_name", "displayname"}


class WordMemory(NamedTuple):
    """Words and their vectors (N, D) of unit length, encoded without a template."""

    words: list[str]
    vectors: Tensor

    def nearest(self, images: Tensor, n: int) -> Tensor:
        """Return ids (B, n) of the words nearest to images (B, D), best first.

        [Dissertation Eq. 4.4]
        """
        return nearest_rows(images, self.vectors, n)[1]

    @property
    def digest(self) -> str:
        return words_digest(self.words)


def words_digest(words: Sequence[str]) -> str:
    """Return the digest of a word list: word ids are valid for one list only."""
    return digest_of("\n".join(words).encode()).hex()


def load_words(source: str | Path | None = None, model: ImageText | None = None) -> list[str]:
    """Read a word list without duplicates: a text file of one word a line, or a CSV's last column.

    Without a source the list is the vocabulary of `model` if it has one, as a small CLIP does,
    else the first name of each class of ImageNet-21k.
    """
    if source is None:
        first_names = (names[0] for names in imagenet_names("imagenet21k"))
        return unique_words(getattr(model, "things", ())) or unique_words(first_names)
    path = Path(source)
    is_csv = path.suffix.lower() == ".csv"  # in a text file, commas belong to the word
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file)) if is_csv else [[line] for line in file]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"no word list {path}: give a text file with one word a line, or a CSV ({error})"
        ) from None
    longest = max((len(row[-1]) for row in rows if row), default=0)
    if longest > MAX_WORD:
        raise ValueError(f"{path} has a line of {longest} characters: give one word a line")
    words = unique_words(row[-1] for row in rows if row)
    if is_csv and words and words[0].casefold() in CSV_HEADERS:
        words = words[1:]
    if not words:
        raise ValueError(f"{path} is empty: give a text file with one word a line, or a CSV")
    return words


def imagenet_names(subset: str = "imagenet-1k") -> list[list[str]]:
    """Return the names of each class."""
    from timm.data.imagenet_info import ImageNetInfo

    return [names.split(",") for names in ImageNetInfo(subset).label_descriptions()]


def unique_words(words: Iterable[str]) -> list[str]:
    """Strip words and keep the first spelling of those that differ in case only."""
    spellings = dict[str, str]()
    for word in words:
        if plain := " ".join(word.split()):
            spellings.setdefault(plain.casefold(), plain)
    return list(spellings.values())


def remember_words(model: ImageText, words: Sequence[str]) -> WordMemory:
    """Encode the words, or read their vectors from the cache if this model has encoded them."""
    words = list(words)
    name = digest_of(model.identity.encode(), "\n".join(words).encode()).hex()
    path = cache_folder() / "words" / f"{name}.npy"
    vectors = _read_vectors(path, (len(words), model.dim))
    if vectors is None:
        batches = [words[i : i + BATCH] for i in range(0, len(words), BATCH)]
        with torch.no_grad():
            vectors = torch.cat([model.embed_texts(batch).float().cpu() for batch in batches])
        with write_atomically(path) as temporary:
            np.save(temporary, vectors.numpy())
    return WordMemory(words, vectors)


def _read_vectors(path: Path, shape: tuple[int, int]) -> Tensor | None:
    """Return None if the file is missing or damaged: it is then written again."""
    try:
        vectors = np.load(path, allow_pickle=False)
        os.utime(path)
    except (OSError, ValueError, EOFError):
        return None
    if vectors.shape != shape or vectors.dtype != np.float32:
        return None
    return torch.from_numpy(vectors)
