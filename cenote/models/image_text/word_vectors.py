"""Texts as the mean of their tokens' vectors: WordLlama's, which lie in its wheel. Nothing is
downloaded, ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ...extras import MissingExtra
from ...unit import unit
from .interface import checked, in_batches

WEIGHTS = Path("weights") / "l2_supercat_256.safetensors"
TOKENIZER = Path("tokenizers") / "l2_supercat_tokenizer_config.json"


class WordVectors(nn.Module):
    """`words(texts)` -> (N, 256). The files are read without importing the package, which would set
    up logging.
    """

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        spec = find_spec("wordllama")
        if spec is None or not spec.submodule_search_locations:
            raise MissingExtra(
                "the text-space model needs the word vectors of 'wordllama': pip install wordllama"
            )
        folder = Path(spec.submodule_search_locations[0])
        if lacking := [str(path) for path in (WEIGHTS, TOKENIZER) if not (folder / path).is_file()]:
            raise ValueError(
                f"the installed wordllama has no {lacking[0]}: pip install -U wordllama"
            )
        from tokenizers import Tokenizer

        self.tokenizer: Any = Tokenizer.from_file(str(folder / TOKENIZER))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.register_buffer("table", load_file(folder / WEIGHTS)["embedding.weight"].float())
        self.dim = int(self.table.shape[1])

    @torch.no_grad()
    def forward(self, texts: Sequence[str]) -> Tensor:
        rows = [torch.empty(0, self.dim, device=self.table.device)]
        for some in in_batches(checked(texts)):
            ids = [
                encoding.ids
                for encoding in self.tokenizer.encode_batch(list(some), add_special_tokens=False)
            ]
            flat = torch.tensor([token for text in ids for token in text], device=self.table.device)
            lengths = torch.tensor([len(text) for text in ids], device=self.table.device)
            starts = lengths.cumsum(0) - lengths
            rows.append(nn.functional.embedding_bag(flat, self.table, starts, mode="mean"))
        return unit(torch.cat(rows))
