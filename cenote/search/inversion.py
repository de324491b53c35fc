"""SEARLE and Pic2Word: an image becomes a pseudo-word, which is put into a sentence with the text.

SEARLE (Baldrati et al., 2023) fits a pseudo-word to each query image: "a photo of $" matches the
image, while in other sentences the word stays near real words of the image, its concepts. The
authors take those sentences from a language model; here they are PHRASES. Their settings are the
defaults; for domain conversion lr 0.0002 and one concept are better [Dissertation Sec. 4.4.2].

Pic2Word (Saito et al., 2023) trains a small network on images alone. Settings are the authors',
except learning rate, batch size and steps, which suit thousands of images instead of millions;
the network's inputs are vectors of unit length.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.digests import digest_of
from ..unit import unit
from .composition import (
    ComposedQuery,
    CompositionContext,
    Scorer,
    encode_texts,
    image_vectors,
    single,
    weighted_texts,
)
from .database import Database
from .words import WordMemory

if TYPE_CHECKING:
    from ..models.image_text import ImageText, Invertible

PHOTO = "a photo of $"  # the sentence in which the word should mean the image
PHRASES = (PHOTO, "a picture of $ outside", "there is $ in the middle", "$ and nothing else")
COMPOSED = "a {text} of $"  # "a sketch of $" [Dissertation Sec. 4.4.2]
# Its templates of other data sets; a(n) is a or an.
TEMPLATES = {"nico-conversion": "a $ in {text}", "ltll": "a(n) {text} photo of $"}
INITIAL_STD = 0.02  # of the words that optimization starts from
DECAY, AVERAGE = 0.01, 0.99  # SEARLE: weight decay, and the share of earlier words in the result
MAPPING_LR, MAPPING_DECAY, SCALE = 1e-3, 0.1, 100.0  # Pic2Word; the scale is of the logits
DIRECTIONS, IMAGES_PER_DIRECTION = 16, 4096  # sample that a mapping is trained on


# SEARLE


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
    """Fit a pseudo-word to each image, then compose one sentence for each query."""
    model = invertible(context.model, "searle")
    images, digest = image_vectors(queries), context.words.digest if context.words else ""
    settings = repr((steps, lr, concepts, regularisation, seed, digest)).encode()
    words = _fitted_words.setdefault(model, {})
    keys = [digest_of(image.numpy().tobytes(), settings) for image in images]
    missing = list({key: i for i, key in enumerate(keys) if key not in words}.values())
    for start in range(0, len(missing), batch):
        places = missing[start : start + batch]
        fitted = fit_words(
            model, images[places], context.words, steps, lr, concepts, regularisation, seed=seed
        )
        words.update(zip((keys[i] for i in places), fitted, strict=True))
    return _compose_sentences(model, queries, torch.stack([words[key] for key in keys]), template)


# An image is combined with many texts: its word is fitted once.
_fitted_words: WeakKeyDictionary[Invertible, dict[bytes, Tensor]] = WeakKeyDictionary()


def fit_words(
    model: Invertible,
    images: Tensor,
    memory: WordMemory | None,
    steps: int = 350,
    lr: float = 2e-2,
    concepts: int = 15,
    regularisation: float = 0.5,
    seed: int = 0,
) -> Tensor:
    """Return pseudo-words (B, word_dim) of images (B, D).

    An image's word does not depend on the batch: all start alike and use the same random draws.
    """
    rng = torch.Generator().manual_seed(seed)
    initial = INITIAL_STD * torch.randn(1, model.word_dim, generator=rng)
    word = initial.repeat(len(images), 1).to(images.device)
    mean = word.clone()
    word.requires_grad_()
    optimizer = torch.optim.AdamW([word], lr=lr, weight_decay=DECAY)
    targets = None
    if memory is not None and regularisation:
        targets = _concept_sentences(model, images, memory, concepts)
    for _ in range(steps):
        loss = (1 - (model.embed_with_word(PHOTO, word) * images).sum(1)).sum()  # cosine
        if targets is not None:
            phrase, concept = (int(torch.randint(n, (), generator=rng)) for n in targets.shape[:2])
            sentence = model.embed_with_word(PHRASES[phrase], word)
            cosines = (sentence * targets[phrase, concept]).sum(1)
            loss = loss + regularisation * (1 - cosines).sum()
        # The model's own weights get no gradient.
        (word.grad,) = torch.autograd.grad(loss / (1 + regularisation), word)
        optimizer.step()
        mean = AVERAGE * mean + (1 - AVERAGE) * word.detach()
    return mean.cpu()


def _concept_sentences(
    model: Invertible, images: Tensor, memory: WordMemory, concepts: int
) -> Tensor:
    """Return (phrases, concepts, B, D): each image's nearest words in every phrase."""
    nearest = memory.nearest(images.cpu(), concepts)  # (B, concepts)
    sentences = [
        phrase.replace("$", memory.words[int(i)])
        for phrase in PHRASES
        for column in nearest.T
        for i in column.tolist()
    ]
    shape = (len(PHRASES), nearest.shape[1], len(images), -1)
    return encode_texts(model, sentences).reshape(shape).to(images.device)


# Pic2Word


class WordMapping(nn.Module):
    """Map image vectors (B, dim) to pseudo-words (B, word_dim) with three layers."""

    def __init__(self, dim: int, word_dim: int, hidden: int = 512, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(dim, hidden),
            nn.Dropout(dropout),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.Dropout(dropout),
            nn.ReLU(),
            nn.Linear(hidden, word_dim),
        )

    def forward(self, images: Tensor) -> Tensor:
        words: Tensor = self.layers(images)
        return words


def pic2word(
    queries: Sequence[ComposedQuery],
    context: CompositionContext,
    template: str = COMPOSED,
    mapping: WordMapping | str = "",
    length: float = 1.0,
    steps: int = 1000,
    seed: int = 0,
) -> list[Scorer]:
    """Map each image to its pseudo-word.

    `mapping` is a file, or "database": then one is trained on the images that are searched, once.
    `length` is that of the image vectors of its training, which were not normalized in Pic2Word.
    """
    model = invertible(context.model, "pic2word")
    if not mapping:
        raise ValueError(
            "pic2word needs a trained mapping: pic2word:mapping=FILE, or mapping=database, which "
            "trains one on the images that are searched"
        )
    if mapping == "database":
        mappings = _trained_mappings.setdefault(context.database, {})
        key = (model.identity, steps, seed)
        if key not in mappings:
            images = _training_images(context.database, seed)
            mappings[key] = train_mapping(model, images, steps=steps, seed=seed)
        mapping = mappings[key]
    if isinstance(mapping, str):
        mapping = load_mapping(Path(mapping), model.dim, model.word_dim)
    with torch.no_grad():
        words = mapping.eval()(length * image_vectors(queries))
    return _compose_sentences(model, queries, words, template)


_trained_mappings: WeakKeyDictionary[Database, dict[tuple[str, int, int], WordMapping]] = (
    WeakKeyDictionary()
)


def load_mapping(path: Path, dim: int, word_dim: int) -> WordMapping:
    """Load the weights of a `WordMapping`, or of Pic2Word's released checkpoint."""
    saved = torch.load(path, map_location="cpu", weights_only=True)
    state = {
        _layer_name(name): value for name, value in saved.get("state_dict_img2text", saved).items()
    }
    mapping = WordMapping(dim, word_dim, hidden=len(state["layers.0.bias"]))
    mapping.load_state_dict(state)
    return mapping.requires_grad_(False)


def _layer_name(name: str) -> str:
    """Return the name of a released layer here: layers.1.0 is the second linear layer."""
    name = name.removeprefix("module.").replace("fc_out.", "layers.6.")
    for block, layer in (("0", "0"), ("1", "3")):
        name = name.replace(f"layers.{block}.0.", f"layers.{layer}.")
    return name


def _training_images(database: Database, seed: int) -> Tensor:
    """Return vectors of all images, or of those nearest to random directions if there are many."""
    rng = torch.Generator().manual_seed(seed)
    directions = F.normalize(torch.randn(DIRECTIONS, database.dim, generator=rng), dim=1)
    _, rows = database.nearest(directions, min(IMAGES_PER_DIRECTION, len(database)))
    return database.vectors(rows.unique()).float()


def train_mapping(
    model: Invertible,
    images: Tensor,
    steps: int = 1000,
    batch: int = 128,
    dropout: float = 0.1,
    seed: int = 0,
) -> WordMapping:
    """Train on images (N, D): "a photo of $" with an image's word is nearest to that image.

    The model does not change.
    """
    if len(images) < 2:
        raise ValueError(f"a mapping needs at least 2 different images, got {len(images)}")
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        mapping = WordMapping(images.shape[1], model.word_dim, dropout=dropout).to(images.device)
        parameters = list(mapping.parameters())
        optimizer = torch.optim.AdamW(parameters, lr=MAPPING_LR, weight_decay=MAPPING_DECAY)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, MAPPING_LR, total_steps=steps, pct_start=0.1
        )
        for _ in range(steps):
            sample = images[torch.randperm(len(images))[:batch]]
            gradients = torch.autograd.grad(mapping_loss(model, mapping, sample), parameters)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
            schedule.step()
    return mapping.eval().requires_grad_(False)


def mapping_loss(
    model: Invertible, mapping: WordMapping, images: Tensor, scale: float = SCALE
) -> Tensor:
    """Compute the symmetric InfoNCE loss between images (B, D) and the sentences of their words."""
    logits = scale * images @ model.embed_with_word(PHOTO, mapping(images)).T
    targets = torch.arange(len(images), device=images.device)
    return (F.cross_entropy(logits, targets) + F.cross_entropy(logits.T, targets)) / 2


# Shared by both


def invertible(model: ImageText, method: str) -> Invertible:
    """Return the model if its text encoder accepts pseudo-words."""
    from ..models.image_text import Invertible

    if not isinstance(model, Invertible):
        raise ValueError(
            f"'{method}' needs a model whose text encoder accepts pseudo-words, which "
            f"'{model.name}' does not: use an open_clip model or a folder of cenote clip"
        )
    return model


def _compose_sentences(
    model: Invertible, queries: Sequence[ComposedQuery], words: Tensor, template: str
) -> list[Scorer]:
    """Encode sentences of each query's text and its pseudo-word (Q, word_dim); texts are added.

    Unwanted texts are subtracted without the word: else the subject would be subtracted as well.
    """
    rows = torch.zeros(len(queries), model.dim)
    uses: dict[str, list[tuple[int, float]]] = {}  # queries and weights of each sentence
    sentences: list[list[str]] = [[] for _ in queries]
    for i, query in enumerate(queries):
        for text, weight in weighted_texts(query):
            if weight < 0:
                rows[i] += weight * encode_texts(model, [text])[0]
                continue
            article = "an" if text[:1].lower() in "aeiou" else "a"
            filled = template.replace("a(n)", article)
            sentences[i].append(filled.replace("{text}", text))
            # A dollar sign in the user's text is not a pseudo-word.
            sentence = filled.replace("{text}", text.replace("$", " "))
            uses.setdefault(sentence, []).append((i, weight))
    with torch.no_grad():
        for sentence, pairs in uses.items():
            places = [i for i, _ in pairs]
            encoded = model.embed_with_word(sentence, words[places]).float().cpu()
            weights = torch.tensor([[weight] for _, weight in pairs])
            rows.index_add_(0, torch.tensor(places), weights * encoded)
    return [
        single(row, {"sentences": texts}) for row, texts in zip(unit(rows), sentences, strict=True)
    ]
