"""CLIP4Cir's Combiner (Baldrati et al., Effective conditioned and composed image retrieval, 2022).

A small network joins the vectors of an image and a text to one; it is trained on triplets of image,
text and target. Layers and settings are those of the authors' program
(github.com/ABaldrati/CLIP4Cir), in which both encoders are fine-tuned before; here they stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..unit import unit
from .composition import (
    ComposedQuery,
    CompositionContext,
    Scorer,
    image_vectors,
    single,
    text_vectors,
)

SCALE = 100.0  # of the logits
DROPOUT = 0.5


class Triplets(NamedTuple):
    """Vectors of unit length (N, D)."""

    images: Tensor
    texts: Tensor
    targets: Tensor


class Combiner(nn.Module):
    """Text and image: what a network makes of both, plus λ text + (1 - λ) image, of unit length."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        projected, hidden = 4 * dim, 8 * dim  # 2,560 and 5,120 for a CLIP of 640 dimensions
        self.text, self.image = (
            nn.Sequential(nn.Linear(dim, projected), nn.ReLU(), nn.Dropout(DROPOUT))
            for _ in range(2)
        )
        self.joined = nn.Sequential(
            nn.Linear(2 * projected, hidden), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(hidden, dim)
        )
        self.share = nn.Sequential(
            nn.Linear(2 * projected, hidden), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(hidden, 1),
            nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, images: Tensor, texts: Tensor) -> Tensor:
        x = torch.cat([self.text(texts), self.image(images)], 1)  # (B, 2 P)
        share = self.share(x)  # (B, 1)
        return F.normalize(self.joined(x) + share * texts + (1 - share) * images, dim=1)


def combiner(
    queries: Sequence[ComposedQuery],
    context: CompositionContext,
    network: Combiner | None = None,
    epochs: int = 300,
    lr: float = 2e-5,
    batch: int = 4096,
    seed: int = 0,
) -> list[Scorer]:
    """Search by the vector that a trained network makes of image and text."""
    if network is None:
        raise ValueError("combiner is trained on triplets, by cenote evaluate-search")
    with torch.no_grad():
        vectors = network(image_vectors(queries), text_vectors(context.model, queries))
    return [single(vector) for vector in vectors]


def train_combiner(
    triplets: Triplets, epochs: int = 300, lr: float = 2e-5, batch: int = 4096, seed: int = 0
) -> Combiner:
    """Train: the target of a triplet is nearer than those of the others in its batch."""
    images, texts, targets = map(unit, triplets)
    count = len(images)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        network = Combiner(images.shape[1])
        optimizer = torch.optim.Adam(network.parameters(), lr)
        for _ in range(epochs):
            for rows in torch.randperm(count).split(batch):
                if len(rows) < min(batch, count):
                    continue  # the last batch, as the authors do
                logits = SCALE * network(images[rows], texts[rows]) @ targets[rows].T
                optimizer.zero_grad()
                F.cross_entropy(logits, torch.arange(len(rows))).backward()
                optimizer.step()
    return network.eval().requires_grad_(False)
