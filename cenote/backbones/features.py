"""What a backbone gives: patch tokens, their grid, and a CLS token where there is one."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Features(NamedTuple):
    tokens: Tensor  # (B, N, D), N = H W, in reading order; registers are not among them
    grid: tuple[int, int]  # (H, W)
    cls: Tensor | None = None  # (B, D)

    def to(self, device: torch.device) -> Features:
        return Features(
            self.tokens.to(device), self.grid, None if self.cls is None else self.cls.to(device)
        )
