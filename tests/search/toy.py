"""An image-text model without images: a text is the sum of its words, a word is noise of its own."""

import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cenote.unit import unit


def noise(word: str, dim: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(zlib.crc32(word.encode())).standard_normal(dim)).float()


class Toy:
    """Places matter a little, so that "dog red" and "red dog" differ."""

    def __init__(self, dim: int = 24, identity: str = "toy") -> None:
        self.name, self.identity, self.dim = "toy", identity, dim
        self.asked: list[str] = []

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        self.asked += texts
        rows = [
            sum(noise(word, self.dim) * (1 + 0.1 * place) for place, word in enumerate(text.split())) for text in texts
        ]
        return unit(torch.stack([torch.as_tensor(row) for row in rows]))


def vectors(count: int, dim: int = 24, seed: int = 0, shift: float = 0.5) -> Tensor:
    """Unit vectors around a common direction, as image-text models give."""
    draw = torch.Generator().manual_seed(seed)
    return unit(torch.randn(count, dim, generator=draw) + shift * torch.randn(dim, generator=draw) * 2)
