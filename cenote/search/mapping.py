"""Pic2Word (Saito et al., 2023): a small network makes an image's vector a pseudo-word. It is trained on images alone.

Settings are the authors', but for rate, batch and steps, which are for thousands of images and not for millions; the
network sees vectors of length one, as everything here does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..options import check_number
from .composition import ComposedQuery, Database, Scorer
from .pseudo_words import COMPOSED, PHOTO, check_template, check_texts, composed, invertible
from .texts import image_vectors

if TYPE_CHECKING:
    from ..models.image_text import Invertible
    from .methods import CompositionContext

SIDES, EACH = (
    16,
    4096,
)  # a mapping is trained on the images of a database that lie farthest out on so many sides


class WordMapping(nn.Module):
    """(B, dim) -> (B, word_dim): three layers."""

    def __init__(self, dim: int, word_dim: int, hidden: int = 512, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(dim, hidden), nn.Dropout(dropout), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.Dropout(dropout), nn.ReLU(),
            nn.Linear(hidden, word_dim),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        words: Tensor = self.layers(images)
        return words


def pic2word(
    queries: Sequence[ComposedQuery],
    context: CompositionContext,
    template: str = COMPOSED,
    mapping: WordMapping | None = None,
    steps: int = 1000,
    seed: int = 0,
) -> list[Scorer]:
    """Without a `mapping`, one is trained on the images of the database, once."""
    model = invertible(context.model, "pic2word")
    check_texts(queries, "pic2word")
    if mapping is None:
        known = _trained.setdefault(context.database, {})
        key = (model.identity, steps, seed)
        if key not in known:
            known[key] = train_mapping(model, _some(context.database, seed), steps=steps, seed=seed)
        mapping = known[key]
    with torch.no_grad():
        words = mapping.eval()(image_vectors(queries))
    return composed(model, queries, words, template)


def check_pic2word(template: str, steps: int, seed: int) -> None:
    check_template(template)
    check_number("steps", steps, whole=True, least=1)
    check_number("seed", seed, whole=True, least=0)


def _some(database: Database, seed: int) -> Tensor:
    """Vectors of all images, or of many: a store names its rows as it likes, so they are asked for by nearness."""
    sides = torch.randn(SIDES, database.dim, generator=torch.Generator().manual_seed(seed))
    _, rows = database.nearest(F.normalize(sides, dim=1), min(EACH, len(database)))
    return database.vectors(rows.unique()).float()


_trained: WeakKeyDictionary[Database, dict[tuple[str, int, int], WordMapping]] = WeakKeyDictionary()


def train_mapping(
    model: Invertible,
    images: Tensor,
    steps: int = 1000,
    batch: int = 128,
    lr: float = 1e-3,
    decay: float = 0.1,
    scale: float = 100.0,
    hidden: int = 512,
    dropout: float = 0.1,
    seed: int = 0,
) -> WordMapping:
    """So that "a photo of $" with an image's word is nearer to it (N, D) than to others; the model does not change."""
    if len(images) < 2:
        raise ValueError(
            f"a mapping is trained on images that are told apart: {len(images)} are too few"
        )
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        mapping = WordMapping(images.shape[1], model.word_dim, hidden, dropout).to(images.device)
        optimizer = torch.optim.AdamW(mapping.parameters(), lr=lr, weight_decay=decay)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, lr, total_steps=steps, pct_start=0.1
        )
        for _ in range(steps):
            some = images[torch.randperm(len(images))[:batch]]
            loss = mapping_loss(model, mapping, some, scale)
            gradients = torch.autograd.grad(loss, list(mapping.parameters()))
            for parameter, gradient in zip(mapping.parameters(), gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
            schedule.step()
    return mapping.eval().requires_grad_(False)


def mapping_loss(
    model: Invertible, mapping: WordMapping, images: Tensor, scale: float = 100.0
) -> Tensor:
    """Symmetric InfoNCE between images (B, D) and the texts that their words make."""
    logits = scale * images @ model.embed_with_word(PHOTO, mapping(images)).T
    own = torch.arange(len(images), device=images.device)
    return (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2
