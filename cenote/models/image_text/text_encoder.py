"""A small text encoder: texts -> tokens, tokens -> one vector."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

PAD = 0
BYTES = 256  # tokens 1 to 256 are the bytes of UTF-8
FIRST_WORD = 1 + BYTES
SHORTEST = 3  # letters of a known word that may begin an unknown one: "cats" is "cat" and "s"
WORDS = re.compile(r"[^\W_]+|[^\w\s]|_")


class Words:
    """A vocabulary of whole words; all others are encoded in pieces: nothing is out of vocabulary.

    `encode(texts)` -> (N, L) tokens, at most `context` of each text, 0 behind the last.
    """

    def __init__(self, vocabulary: Sequence[str], context: int = 48) -> None:
        self.vocabulary, self.context = list(vocabulary), context
        self.ids = {word: FIRST_WORD + i for i, word in enumerate(self.vocabulary)}
        self.longest = max(map(len, self.vocabulary), default=0)

    def __len__(self) -> int:
        return FIRST_WORD + len(self.vocabulary)

    @classmethod
    def of(cls, texts: Iterable[str], most: int = 20_000, context: int = 48) -> Words:
        """The most frequent words of these texts; ties keep the first in the alphabet."""
        counts = Counter(word for text in texts for word in WORDS.findall(text.lower()))
        return cls(sorted(sorted(counts, key=lambda word: (-counts[word], word))[:most]), context)

    def encode(self, texts: Sequence[str], spelled: Sequence[bool] | None = None) -> Tensor:
        """Where `spelled`, every word letter by letter: so the letters learn what they mean."""
        spelled = spelled or [False] * len(texts)
        rows = [
            self._tokens(text, by_letter) for text, by_letter in zip(texts, spelled, strict=True)
        ]
        ids = torch.full((len(rows), max(map(len, rows), default=0)), PAD)
        for row, tokens in zip(ids, rows, strict=True):
            row[: len(tokens)] = torch.tensor(tokens)
        return ids

    def unknown(self, text: str) -> list[str]:
        """Words that are letters only to the model: neither known nor begun by a known one."""
        words = [word for word in WORDS.findall(text.lower()) if word.isalnum()]
        new = [word for word in words if word not in self.ids]
        return [word for word in new if max(self._pieces(word, False)) < FIRST_WORD]

    def _tokens(self, text: str, spelled: bool) -> list[int]:
        tokens: list[int] = []
        for word in WORDS.findall(text.lower()):
            is_known = word in self.ids and not spelled
            tokens += [self.ids[word]] if is_known else self._pieces(word, spelled)
        return tokens[: self.context]

    def _pieces(self, word: str, spelled: bool) -> list[int]:
        """The longest known beginning, and so on with the rest; letters where nothing is known."""
        pieces: list[int] = []
        while word:
            lengths = () if spelled else range(min(self.longest, len(word)), SHORTEST - 1, -1)
            n = next((n for n in lengths if word[:n] in self.ids), 0)
            if n:
                pieces.append(self.ids[word[:n]])
            else:
                pieces += [1 + byte for byte in word[0].encode("utf-8", "surrogatepass")]
            word = word[n or 1 :]
        return pieces


class TextTower(nn.Module):
    """`tower(ids)`: (N, L) -> (N, dim), the mean over words that see each other both ways."""

    def __init__(
        self,
        tokens: int,
        dim: int,
        context: int = 48,
        width: int = 128,
        layers: int = 2,
        heads: int = 4,
    ) -> None:
        super().__init__()
        if min(tokens, dim, context, width, layers, heads) < 1 or width % heads:
            raise ValueError(
                f"a text transformer needs sizes from 1, and {heads} heads must share its width {width}"
            )
        self.options = {"context": context, "width": width, "layers": layers, "heads": heads}
        self.embedding = nn.Embedding(tokens, width)
        self.position = nn.Parameter(torch.empty(context, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.projection = nn.Linear(width, dim, bias=False)
        for block in self.blocks.layers:  # copies of one layer: all of them would begin alike
            for module in block.modules():
                if isinstance(module, nn.Linear):
                    nn.init.xavier_uniform_(module.weight)
        nn.init.normal_(self.embedding.weight, std=0.1)
        nn.init.normal_(self.position, std=0.02)

    def no_weight_decay(self) -> set[str]:
        return {"position", "embedding.weight"}

    def forward(self, ids: Tensor) -> Tensor:
        is_token = (ids != PAD)[..., None]  # (N, L, 1)
        x = self.embedding(ids) + self.position[: ids.shape[1]]
        x = self.norm(self.blocks(x, src_key_padding_mask=~is_token[..., 0]))
        mean = (x * is_token).sum(1) / is_token.sum(1)  # (N, width)
        return self.projection(mean)
