"""The first two moments of a database as sums in double: what enters is added, what leaves is taken off."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import torch
from torch import Tensor

from .composition import Moments

BLOCK = 4096  # rows at a time


class MomentSums:
    def __init__(self, dim: int) -> None:
        self.count = 0
        self.first = torch.zeros(dim, dtype=torch.double)
        self.second = torch.zeros(dim, dim, dtype=torch.double)

    def add(self, vectors: Tensor, sign: int = 1) -> None:
        """(N, D); a sign of -1 takes them off."""
        for part in vectors.split(BLOCK):
            x = part.double()
            self.count += sign * len(x)
            self.first += sign * x.sum(0)
            self.second.addmm_(x.T, x, alpha=sign)

    def moments(self) -> Moments:
        if self.count < 1:
            raise ValueError("an empty index has no statistics: index some images first")
        mean = self.first / self.count
        around = self.second - self.count * torch.outer(mean, mean)
        return Moments(self.count, mean, around / max(self.count - 1, 1))

    def packed(self) -> bytes:
        file = BytesIO()
        np.savez(file, count=self.count, first=self.first.numpy(), second=self.second.numpy())
        return file.getvalue()

    @classmethod
    def unpacked(cls, data: bytes) -> MomentSums:
        with np.load(BytesIO(data), allow_pickle=False) as kept:
            sums = cls(len(kept["first"]))
            sums.count = int(kept["count"])
            sums.first, sums.second = (
                torch.from_numpy(kept["first"]),
                torch.from_numpy(kept["second"]),
            )
        return sums
