"""Texts as numbers, with a vocabulary of whole words; all others in pieces: nothing is out of
vocabulary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

PAD = 0
BYTES = 256  # tokens 1 to 256 are the bytes of UTF-8
FIRST_WORD = 1 + BYTES
SHORTEST = 3  # letters of a known word that may begin an unknown one: "cats" is "cat" and "s"
WORDS = re.compile(r"[^\W_]+|[^\w\s]|_")


class Words:
    """`encode(texts)` -> (N, L) tokens, at most `context` of each text, 0 behind the last."""

    def __init__(self, vocabulary: Sequence[str], context: int = 48) -> None:
        self.vocabulary, self.context = list(vocabulary), context
        self.ids = {word: FIRST_WORD + i for i, word in enumerate(self.vocabulary)}
        self.longest = max(map(len, self.vocabulary), default=0)

    def __len__(self) -> int:
        return FIRST_WORD + len(self.vocabulary)

    @classmethod
    def of(cls, texts: Iterable[str], most: int = 20_000, context: int = 48) -> Words:
        """The words of these texts, the most frequent ones; of equals the first in the alphabet."""
        counts = Counter(word for text in texts for word in WORDS.findall(text.lower()))
        return cls(sorted(sorted(counts, key=lambda word: (-counts[word], word))[:most]), context)

    def encode(self, texts: Sequence[str], spelled: Sequence[bool] | None = None) -> Tensor:
        """Where `spelled`, every word letter by letter: so the letters learn what they mean."""
        rows = [
            self._tokens(text, spelled is not None and spelled[i]) for i, text in enumerate(texts)
        ]
        ids = torch.full((len(rows), max(map(len, rows), default=0)), PAD)
        for row, tokens in zip(ids, rows, strict=True):
            row[: len(tokens)] = torch.tensor(tokens)
        return ids

    def unknown(self, text: str) -> list[str]:
        """Words that are letters only to the model: neither known nor begun by a known one."""
        words = [word for word in WORDS.findall(text.lower()) if word.isalnum()]
        return [
            word
            for word in words
            if word not in self.ids and max(self._pieces(word, False)) < FIRST_WORD
        ]

    def _tokens(self, text: str, spelled: bool) -> list[int]:
        tokens: list[int] = []
        for word in WORDS.findall(text.lower()):
            token = None if spelled else self.ids.get(word)
            tokens += self._pieces(word, spelled) if token is None else [token]
        return tokens[: self.context]

    def _pieces(self, word: str, spelled: bool) -> list[int]:
        """The longest known beginning, and so on with the rest; letters where nothing is known."""
        pieces: list[int] = []
        while word:
            lengths = () if spelled else range(min(self.longest, len(word)), SHORTEST - 1, -1)
            n = next((n for n in lengths if word[:n] in self.ids), 0)
            pieces += (
                [self.ids[word[:n]]]
                if n
                else [1 + byte for byte in word[0].encode("utf-8", "surrogatepass")]
            )
            word = word[n or 1 :]
        return pieces
