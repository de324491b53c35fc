"""BASIC (Psomas et al., Instance-level composed image retrieval, 2025).

Vectors are centred, projected, expanded and fused, as in the authors' program
(github.com/billpsomas/icir). It takes the mean of the images and the minima of similarities from
files of external images, which are options here; without them both come from the database.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data.checks import check, errors_in
from ..data.safe_pickle import read_pickle
from ..unit import unit
from .composition import (
    ComposedQuery,
    CompositionContext,
    Scorer,
    encode_texts,
    image_vectors,
    weighted_texts,
)
from .database import Database
from .words import WordMemory, imagenet_names, remember_words, unique_words

if TYPE_CHECKING:
    from ..models.image_text import ImageText

CONTRAST = 0.2  # of styles against subjects: C = (1 - a) S_subjects - a S_styles
OFFSET = 1e-5  # added to every element of C: it favours the direction (1, ..., 1)
COMPONENTS = 250  # eigenvectors, at most those of positive eigenvalue
EXPANSION = 25  # images that the query is averaged with; 0 for none
SHARPNESS = 0.1  # of their weights exp(0.1 s); the query's own s is 1
CONTEXT = 100  # subjects put before and after the text; 0 for none
HARRIS = 0.1  # s_t s_i - 0.1 (s_t + s_i)^2
SAMPLE_IMAGES, SAMPLE_TEXTS = 1000, 100  # images for the minima, found by this number of texts
TANGENT_AT = 3.0  # deviations above the mean at which the fusion is linearized
BLOCK = 1024  # rows of similarities at a time
MAX_MINIMUM = -1e-6  # a minimum that is not negative would invert the scale

# How and where things are shown, as opposed to what they are: the projection removes it.
_STYLES = """
    photograph, black and white photograph, old photograph, blurry photograph, painting,
    oil painting, watercolour, drawing, pencil sketch, charcoal drawing, cartoon, comic, clip art,
    line art, silhouette, engraving, woodcut, poster, graffiti, mosaic, stained glass, embroidery,
    tattoo, sculpture, origami, toy, plush toy, plastic figure, paper cut-out, video game,
    pixel art, computer graphics, icon, logo, diagram, blueprint, neon sign, mural,
    old, new, broken, ruined, dusty, rusty, wet, frozen, burnt, painted, wooden, metallic, golden,
    made of glass, made of stone, made of paper, knitted, transparent, colourful, grey, red, green,
    blue, yellow, white, black,
    at night, at sunset, at dawn, in bright sunlight, in dim light, in fog, in the rain,
    in the snow, under water, in autumn, in winter, in spring, in summer, under a cloudy sky,
    in candlelight, against the light, in shadow,
    on grass, on rocks, on sand, on a table, on a wall, on the street, on a white background,
    on a plate, on a shelf, in water, in the sky, in a forest, in a field, in the desert,
    in the mountains, on a beach, by the sea, in a city, in a room, in a kitchen, in a garden,
    in a museum, in a shop, in a cage, in a box, in space, outdoors, indoors,
    close-up, seen from above, seen from below, seen from the side, seen from far away,
    partly hidden, upside down, a crowd of them, two of them, many of them, one of them,
    with people, without people, held in a hand
"""
STYLES = [" ".join(name.split()) for name in _STYLES.split(",")]


class ScaleSample(NamedTuple):
    """Vectors of unit length whose smallest similarities are the zero of the scores."""

    images: Tensor  # (N, D)
    texts: Tensor  # (M, D)


class BasicSpace(NamedTuple):
    """What depends on the database and the word lists, not on the query."""

    image_mean: Tensor  # (D,)
    text_mean: Tensor  # (D,)
    projection: Tensor  # (D, D)
    minima: tuple[float, float]  # smallest similarity of a text and of an image


def basic(
    queries: Sequence[ComposedQuery],
    context: CompositionContext,
    mean: str = "",
    subjects: str | Sequence[str] = "",
    styles: str | Sequence[str] = "",
    scale: str = "",
    contrast: float = CONTRAST,
    components: int = COMPONENTS,
    expansion: int = EXPANSION,
    contextual: int = CONTEXT,
    harris: float = HARRIS,
) -> list[Scorer]:
    """Fuse the similarities of the contextualized text and of the projected, expanded image.

    `mean` and `scale` are files of the authors' (`read_mean`, `read_sample`), by default both are
    computed from the database. `subjects` and `styles` are words, or a file (`read_corpus`).
    """
    model, database = context.model, context.database
    if not subjects:
        subjects = unique_words(name for names in imagenet_names() for name in names)
    positive, negative = (
        remember_words(model, read_corpus(Path(words)) if isinstance(words, str) else words)
        for words in (subjects, styles or STYLES)
    )
    image_mean = read_mean(Path(mean), model.dim) if mean else None
    sample = read_sample(Path(scale), model.dim) if scale else None
    space = basic_space(database, positive, negative, contrast, components, image_mean, sample)
    t = contextualize(model, queries, positive.words[:contextual]) - space.text_mean  # (Q, D)
    centred = image_vectors(queries) - space.image_mean
    y = expand(centred, space, database, expansion) @ space.projection  # (Q, D)
    vectors = torch.stack([t, y], 1)  # (Q, 2, D)
    offsets = -(vectors.double() @ space.image_mean.double())  # q . (x - mean) = q . x - q . mean
    minima = torch.tensor(space.minima, dtype=torch.double)
    combine = partial(fuse, minima, harris)
    directions = _directions(vectors, offsets, database, minima, harris)
    why = {"least": {"text": space.minima[0], "image": space.minima[1]}}
    return [
        Scorer(v, offset, combine, direction, why)
        for v, offset, direction in zip(vectors, offsets, directions, strict=True)
    ]


def read_corpus(path: Path) -> list[str]:
    """Read the first column of a CSV as the authors do: a header or a duplicate is a word, too."""
    with errors_in(path), open(path, encoding="utf-8-sig", newline="") as file:
        words = [row[0] for row in csv.reader(file) if row]
    check(len(words) > 1, f"{path} has {len(words)} words: BASIC needs at least 2")
    return words


def read_mean(path: Path, dim: int) -> Tensor:
    """Read the mean (D,) of image vectors: a pickled {"laion_1m_mean": tensor}, or a .npy array."""
    contents = read_pickle(path)
    with errors_in(path):
        if isinstance(contents, dict):
            contents = contents["laion_1m_mean"]
        (mean,) = _float_vectors(contents, dim)
        return mean


def read_sample(path: Path, dim: int) -> ScaleSample:
    """Read a .npy file of a dictionary: image_features (N, D) and text_features (M, D)."""
    contents = read_pickle(path)
    with errors_in(path):
        images, texts = (contents[f"{kind}_features"] for kind in ("image", "text"))
        return ScaleSample(unit(_float_vectors(images, dim)), unit(_float_vectors(texts, dim)))


def _float_vectors(values: Any, dim: int) -> Tensor:
    vectors = torch.from_numpy(np.atleast_2d(np.asarray(values, np.float32)))
    expected = f"the model has {dim} dimensions, the file has an array {tuple(vectors.shape)}"
    check(vectors.ndim == 2 and vectors.shape[1] == dim, expected)
    return vectors


def fuse(minima: Tensor, harris: float, similarities: Tensor) -> Tensor:
    """Return scores (N,) of similarities (2, N), of texts and of images: Harris' corner measure."""
    s_t, s_i = _scaled(similarities, minima.to(similarities)[:, None])
    score: Tensor = s_t * s_i - harris * (s_t + s_i) ** 2
    return score


def _scaled(similarities: Tensor, minima: Tensor) -> Tensor:
    """Return (s - min) / |min of images|, at least 0; text and image are the first dimension.

    The authors' program divides the similarities of texts by the minimum of images, too.
    """
    return ((similarities - minima) / minima[1].abs()).clamp(min=0)


def basic_space(
    database: Database,
    positive: WordMemory,
    negative: WordMemory,
    contrast: float = CONTRAST,
    components: int = COMPONENTS,
    image_mean: Tensor | None = None,
    sample: ScaleSample | None = None,
) -> BasicSpace:
    """Compute means, the contrastive projection and the minima."""
    if image_mean is None:
        image_mean = database.moments().mean.float()
    text_mean = positive.vectors.mean(0)
    a, b = positive.vectors - text_mean, negative.vectors - text_mean
    contrasted = (1 - contrast) * _scatter(a) - contrast * _scatter(b) + OFFSET
    values, vectors = torch.linalg.eigh(contrasted)
    count = min(components, int((values > 0).sum()))
    top = vectors[:, len(values) - count :].float()  # eigenvalues ascend
    if sample is None:
        sample = ScaleSample(_sample(database, positive.vectors), positive.vectors)
    images, texts = sample.images - image_mean, sample.texts - text_mean
    minima = _lowest(texts, images), _lowest(images, images)
    return BasicSpace(image_mean, text_mean, top @ top.T, minima)


def _lowest(rows: Tensor, images: Tensor) -> float:
    lowest = min(float((block @ images.T).min()) for block in rows.split(BLOCK))
    return min(lowest, MAX_MINIMUM)


def _sample(database: Database, texts: Tensor) -> Tensor:
    """Return vectors of the images nearest to texts from the whole list, SAMPLE_IMAGES at most."""
    queries = texts[:: -(-len(texts) // SAMPLE_TEXTS)]
    rows = database.nearest(queries, SAMPLE_IMAGES // SAMPLE_TEXTS)[1].unique()
    return database.vectors(rows).float()


def _scatter(rows: Tensor) -> Tensor:
    rows = rows.double()
    return rows.T @ rows / max(len(rows) - 1, 1)


def contextualize(
    model: ImageText, queries: Sequence[ComposedQuery], subjects: Sequence[str]
) -> Tensor:
    """Return the mean (Q, D) of "subject text" and "text subject" over the subjects, normalized."""
    rows = []
    for query in queries:
        if query.text is not None and not query.texts:
            rows.append(query.text)
            continue
        total = torch.zeros(model.dim)
        for text, weight in weighted_texts(query):
            sentences = [f"{s} {text}" for s in subjects] + [f"{text} {s}" for s in subjects]
            total += weight * encode_texts(model, sentences or [text]).mean(0)
        rows.append(unit(total))
    return torch.stack(rows)


def expand(
    images: Tensor, space: BasicSpace, database: Database, expansion: int = EXPANSION
) -> Tensor:
    """Average centred images (Q, D) with their nearest, weighted by exp(0.1 s)."""
    if not expansion:
        return images
    projected = images @ space.projection
    # Centring shifts all similarities of a query by the same number.
    products, rows = database.nearest(projected, expansion)
    similarities = products - projected @ space.image_mean[:, None]
    similarities = torch.cat([similarities, torch.ones(len(images), 1)], 1)  # (Q, k + 1)
    weights = similarities.mul(SHARPNESS).softmax(1)
    neighbours = database.vectors(rows.flatten()).float().unflatten(0, rows.shape)  # (Q, k, D)
    neighbours = neighbours - space.image_mean
    return (weights[:, :, None] * torch.cat([neighbours, images[:, None]], 1)).sum(1)


def _directions(
    vectors: Tensor, offsets: Tensor, database: Database, minima: Tensor, harris: float
) -> Tensor:
    """Return the gradient (Q, D) of the fusion where good images are."""
    mu, sigma = database.moments().statistics(vectors.flatten(0, 1))
    s = (mu + TANGENT_AT * sigma).view(-1, 2) + offsets
    s_t, s_i = _scaled(s.T, minima[:, None])
    common = 2 * harris * (s_t + s_i)
    slopes = torch.stack([s_i - common, s_t - common], 1) / minima[1].abs()  # (Q, 2)
    return (slopes[:, :, None] * vectors).sum(1).float()
