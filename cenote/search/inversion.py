"""SEARLE's optimisation-based textual inversion (Baldrati et al., 2023): a pseudo-word is fitted to each query image.

The word v* makes "a photo of $" match the image, while in other sentences it stays near those with real words of the
image, its concepts. The authors take those sentences from a language model; here they are PHRASES. Their settings are
the defaults; for domain conversion (D 4.4.2) found lr 0.0002 and one concept better.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..data.digests import digest_of
from ..options import check_number
from .composition import ComposedQuery, Scorer
from .pseudo_words import COMPOSED, PHOTO, check_template, check_texts, composed, invertible
from .texts import encode, image_vectors

if TYPE_CHECKING:
    from ..models.image_text import Invertible
    from .methods import CompositionContext
    from .words import WordMemory

PHRASES = (PHOTO, "a picture of $ outside", "there is $ in the middle", "$ and nothing else")
SPREAD = 0.02  # of the words that optimisation begins with


def searle(
    queries: Sequence[ComposedQuery],
    context: CompositionContext,
    template: str = COMPOSED,
    steps: int = 350,
    lr: float = 2e-2,
    concepts: int = 15,
    regularisation: float = 0.5,
    batch: int = 32,
    seed: int = 0,
) -> list[Scorer]:
    """A word for each image, then one sentence for each query."""
    model = invertible(context.model, "searle")
    check_texts(queries, "searle")
    images = image_vectors(queries)
    settings = (
        steps,
        lr,
        concepts,
        regularisation,
        seed,
        context.words.digest if context.words else "",
    )
    known = _found.setdefault(model, {})
    keys = [digest_of(image.numpy().tobytes(), repr(settings).encode()) for image in images]
    new = list({key: i for i, key in enumerate(keys) if key not in known}.values())
    for some in (new[start : start + batch] for start in range(0, len(new), batch)):
        words = invert(
            model, images[some], context.words, steps, lr, concepts, regularisation, seed=seed
        )
        known.update(zip((keys[i] for i in some), words, strict=True))
    return composed(model, queries, torch.stack([known[key] for key in keys]), template)


def check_searle(
    template: str,
    steps: int,
    lr: float,
    concepts: int,
    regularisation: float,
    batch: int,
    seed: int,
) -> None:
    check_template(template)
    for name, value, least in (
        ("steps", steps, 0),
        ("concepts", concepts, 1),
        ("batch", batch, 1),
        ("seed", seed, 0),
    ):
        check_number(name, value, whole=True, least=least)
    check_number("lr", lr, above=0)
    check_number("regularisation", regularisation, least=0)


# An image is asked for with many texts: its word is found once.
_found: WeakKeyDictionary[Invertible, dict[bytes, Tensor]] = WeakKeyDictionary()


def invert(
    model: Invertible,
    images: Tensor,
    memory: WordMemory | None,
    steps: int = 350,
    lr: float = 2e-2,
    concepts: int = 15,
    regularisation: float = 0.5,
    decay: float = 0.01,
    ema: float = 0.99,
    seed: int = 0,
) -> Tensor:
    """(B, D) -> (B, word_dim). An image's word does not depend on the others: all begin alike and draw alike."""
    if regularisation and memory is None:
        raise ValueError(
            "'searle' keeps its words near those of a text memory: give one, or regularisation=0"
        )
    draw = torch.Generator().manual_seed(seed)
    word = (
        (SPREAD * torch.randn(1, model.word_dim, generator=draw))
        .repeat(len(images), 1)
        .to(images.device)
    )
    mean = word.clone()
    word.requires_grad_()
    optimizer = torch.optim.AdamW([word], lr=lr, weight_decay=decay)
    near = (
        _sentences(model, images, memory, concepts)
        if memory is not None and regularisation
        else None
    )
    for _ in range(steps):
        loss = (1 - (model.embed_with_word(PHOTO, word) * images).sum(1)).sum()  # cosine
        if near is not None:
            phrase, concept = (int(torch.randint(n, (), generator=draw)) for n in near.shape[:2])
            found = model.embed_with_word(PHRASES[phrase], word)
            loss = loss + regularisation * (1 - (found * near[phrase, concept]).sum(1)).sum()
        (word.grad,) = torch.autograd.grad(
            loss / (1 + regularisation), word
        )  # the model's own weights get none
        optimizer.step()
        mean = ema * mean + (1 - ema) * word.detach()
    return mean.cpu()


def _sentences(model: Invertible, images: Tensor, memory: WordMemory, concepts: int) -> Tensor:
    """(phrases, concepts, B, D): each image's nearest words in every phrase."""
    nearest = memory.nearest(images.cpu(), concepts)  # (B, concepts)
    told = [
        phrase.replace("$", memory.words[int(i)])
        for phrase in PHRASES
        for column in nearest.T
        for i in column.tolist()
    ]
    return (
        encode(model, told)
        .reshape(len(PHRASES), nearest.shape[1], len(images), -1)
        .to(images.device)
    )
