"""Dense relative localization: an auxiliary loss that teaches a transformer where its tokens are."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DRLoc(nn.Module):
    """Predict the offset of two tokens from their features, for random pairs of each image.

    Liu et al., Efficient Training of Visual Transformers with Small Datasets, NeurIPS 2021: for
    tokens at (i, j) and (p, h) of a grid of k x k the target is (|i - p|, |j - h|) / k, an MLP of
    three layers predicts it from both features in a row, and the loss is the absolute error, a
    mean over `pairs` pairs of each image and both coordinates.
    """

    def __init__(self, dim: int, weight: float = 0.1, pairs: int = 64, hidden: int = 512) -> None:
        super().__init__()
        self.weight, self.pairs = weight, pairs
        self.mlp = nn.Sequential(
            nn.Linear(2 * dim, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 2),
        )

    def forward(self, tokens: Tensor, grid: tuple[int, int], rng: torch.Generator) -> Tensor:
        """Return the weighted loss of tokens (B, N, D), N = H W, in reading order."""
        batch, n, dim = tokens.shape
        places = torch.randint(n, (batch, 2 * self.pairs), generator=rng).to(tokens.device)
        features = tokens.gather(1, places[..., None].expand(-1, -1, dim))  # (B, 2m, D)
        distances = self.mlp(features.unflatten(1, (self.pairs, 2)).flatten(2))  # (B, m, 2)
        first, second = places.unflatten(1, (self.pairs, 2)).unbind(-1)  # (B, m)
        height, width = grid
        rows = (first // width - second // width).abs() / height
        columns = (first % width - second % width).abs() / width
        # The mean over both coordinates, too, as in the authors' program, whose weights these are.
        return self.weight * (distances - torch.stack([rows, columns], -1)).abs().mean()
