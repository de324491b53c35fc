"""BASIC (Psomas et al., Instance-level composed image retrieval, 2025): centred, projected, expanded, fused.

Here the means are those of the database and of the subjects, and the minima those of a sample of the database: the
authors take all of them from outside images, which are not at hand. Their code divides both similarities by the image
minimum; here each is divided by its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..options import check_number
from ..unit import unit
from .composition import ComposedQuery, Database, Scorer
from .styles import STYLES
from .texts import encode, image_vectors, terms
from .words import WordMemory, remember_words
from .words import subjects as imagenet_names

if TYPE_CHECKING:
    from ..models.image_text import ImageText
    from .methods import CompositionContext

CONTRAST = 0.2  # of styles against subjects: C = (1 - a) S_subjects - a S_styles
COMPONENTS = 250  # eigenvectors, at most those of positive eigenvalue
EXPANSION = 25  # images that the query is averaged with; 0 for none
SHARPNESS = 0.1  # of their weights exp(0.1 s); the query's own s is 1
CONTEXT = 100  # subjects put before and behind the text; 0 for none
HARRIS = 0.1  # s_t s_i - 0.1 (s_t + s_i)^2
SAMPLE, SUBJECTS = 1000, 100  # images that the minima are taken from, found by so many texts
ABOVE = (
    3.0  # deviations above the mean: where the best images are, there the fusion is made straight
)


class BasicSpace(NamedTuple):
    """What depends on the database and the corpora, not on the query."""

    image_mean: Tensor  # (D,)
    text_mean: Tensor  # (D,)
    projection: Tensor  # (D, D)
    least: tuple[float, float]  # the smallest similarity of a text and of an image


def basic(
    queries: Sequence[ComposedQuery],
    context: CompositionContext,
    subjects: Sequence[str] | None = None,
    styles: Sequence[str] | None = None,
    contrast: float = CONTRAST,
    components: int = COMPONENTS,
    expansion: int = EXPANSION,
    contextual: int = CONTEXT,
    harris: float = HARRIS,
) -> list[Scorer]:
    """Fused similarities of the centred text, put into context, and the centred, projected, expanded image."""
    model, database = context.model, context.database
    positive = remember_words(model, imagenet_names() if subjects is None else subjects)
    negative = remember_words(model, STYLES if styles is None else styles)
    space = space_of(database, positive, negative, contrast, components)
    t = contextualised(model, queries, positive.words[:contextual]) - space.text_mean  # (Q, D)
    y = (
        expanded(image_vectors(queries) - space.image_mean, space, database, expansion)
        @ space.projection
    )
    vectors = torch.stack([t, y], 1)  # (Q, 2, D)
    offsets = -(vectors.double() @ space.image_mean.double())  # q . (x - mean) = q . x - q . mean
    least = torch.tensor(space.least, dtype=torch.double)
    combine = partial(fused, least, harris)
    directions = _directions(vectors, offsets, database, least, harris)
    why = {"least": {"text": space.least[0], "image": space.least[1]}}
    return [
        Scorer(v, o, combine, d, why) for v, o, d in zip(vectors, offsets, directions, strict=True)
    ]


def check_basic(
    contrast: float, components: int, expansion: int, contextual: int, harris: float
) -> None:
    check_number("components", components, whole=True, least=1)
    check_number("expansion", expansion, whole=True, least=0)
    check_number("contextual", contextual, whole=True, least=0)
    check_number("contrast", contrast, least=0, most=1)
    check_number("harris", harris, least=0)


def fused(least: Tensor, harris: float, similarities: Tensor) -> Tensor:
    """(2, N) -> (N,): (s - min) / |min| each, not below 0, then Harris's corner measure."""
    low = least.to(similarities)[:, None]
    s_t, s_i = ((similarities - low) / low.abs()).clamp(min=0)
    score: Tensor = s_t * s_i - harris * (s_t + s_i) ** 2
    return score


def space_of(
    database: Database, positive: WordMemory, negative: WordMemory, contrast: float = CONTRAST,
    components: int = COMPONENTS,
) -> BasicSpace:  # fmt: skip
    image_mean = database.moments().mean.float()
    text_mean = positive.vectors.mean(0)
    a, b = positive.vectors - text_mean, negative.vectors - text_mean
    scatter = (1 - contrast) * _scatter(a) - contrast * _scatter(b)
    values, vectors = torch.linalg.eigh(scatter)  # ascending
    count = min(components, int((values > 0).sum()))
    top = vectors[:, len(values) - count :].float()
    sample = _sample(database, positive.vectors) - image_mean
    least = (float((a @ sample.T).min()), float((sample @ sample.T).min()))
    # A minimum that is not negative, as of a single image, would turn the scale around.
    return BasicSpace(
        image_mean, text_mean, top @ top.T, (min(least[0], -1e-6), min(least[1], -1e-6))
    )


def _sample(database: Database, texts: Tensor) -> Tensor:
    """At most SAMPLE different images, those nearest to texts from all over the list: whatever rows a database has."""
    asked = texts[:: -(-len(texts) // SUBJECTS)]
    rows = database.nearest(asked, SAMPLE // SUBJECTS)[1].unique()
    return database.vectors(rows).float()


def _scatter(rows: Tensor) -> Tensor:
    rows = rows.double()
    return rows.T @ rows / max(len(rows) - 1, 1)


def contextualised(
    model: ImageText, queries: Sequence[ComposedQuery], subjects: Sequence[str]
) -> Tensor:
    """(Q, D): the mean of "subject text" and "text subject" over the subjects, at unit length."""
    rows = []
    for query in queries:
        if query.text is not None and not query.texts:
            rows.append(query.text)
            continue
        total = torch.zeros(model.dim)
        for text, weight in terms(query):
            around = [f"{s} {text}" for s in subjects] + [f"{text} {s}" for s in subjects]
            total += weight * encode(model, around or [text]).mean(0)
        rows.append(unit(total))
    return torch.stack(rows)


def expanded(
    images: Tensor, space: BasicSpace, database: Database, expansion: int = EXPANSION
) -> Tensor:
    """(Q, D) centred -> (Q, D): the mean of the query and its nearest, weighed by exp(0.1 s)."""
    if not expansion:
        return images
    projected = images @ space.projection
    found, rows = database.nearest(
        projected, expansion
    )  # the mean shifts all similarities of a query alike
    similarities = found - projected @ space.image_mean[:, None]
    weights = (
        torch.cat([similarities, torch.ones(len(images), 1)], 1).mul(SHARPNESS).softmax(1)
    )  # (Q, k + 1)
    near = (
        database.vectors(rows.flatten()).float().unflatten(0, rows.shape) - space.image_mean
    )  # (Q, k, D)
    return (weights[:, :, None] * torch.cat([near, images[:, None]], 1)).sum(1)


def _directions(
    vectors: Tensor, offsets: Tensor, database: Database, least: Tensor, harris: float
) -> Tensor:
    """(Q, D): the slope of the fusion where good images are."""
    mu, sigma = database.moments().statistics(vectors.flatten(0, 1))
    s = (mu + ABOVE * sigma).view(-1, 2) + offsets
    s_t, s_i = ((s - least) / least.abs()).clamp(min=0).unbind(1)
    common = 2 * harris * (s_t + s_i)
    slopes = torch.stack([s_i - common, s_t - common], 1) / least.abs()  # (Q, 2)
    return (slopes[:, :, None] * vectors).sum(1).float()
