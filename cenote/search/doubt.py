"""Doubt: does a model know a text, and what share of the images at a score is right?

`benchmarks/text_space.py --doubt` and `--calibrate` chose the constants and measure them.
"""

from __future__ import annotations

import difflib
import random
import string
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..models.image_text import ClassSpace, ImageText, Vocabulary
from ..models.image_text.synsets import MIN_FAMILIARITY
from ..unit import unit
from .composition import encode_texts
from .database import nearest_rows
from .store import Store
from .words import WordMemory, imagenet_names, remember_words, unique_words

NEAREST = 5  # names that are suggested
BEST = 10  # images by which a text is judged: the first page of results
MAX_SAMPLE = 2000  # images that the unrelated texts are compared with
NULL_QUANTILE = 0.95  # of unrelated texts that a text must exceed
MIN_LIKENESS = 0.3  # of the best image: 0 unrelated texts reach, 1 an image of the nearest class
MIN_LETTERS, MAX_LETTERS = 4, 40  # of a text whose spelling is compared
SPELLING = 0.8  # least ratio of equal letters of names that are spelled alike
NONSENSE = 100  # made-up words
TIE_WEIGHT = 1e-6


@dataclass(frozen=True)
class TextFamiliarity:
    """How well a model knows a text.

    `score` is comparable between texts of one model, higher is better known: 0 to 1 for a model
    with a vocabulary, else standard deviations above made-up words. `nearest`: names that the
    model knows, spelled alike or of similar meaning; none for nonsense.
    """

    text: str
    known: bool
    score: float
    nearest: tuple[str, ...]
    unknown_words: tuple[str, ...] = ()  # of a text that is known by its other words


def assess_texts(
    texts: Sequence[str], model: ImageText, image_vectors: Tensor | None = None
) -> list[TextFamiliarity]:
    """Judge each text by the model's vocabulary or, if it has none, by images of the database.

    A model without a vocabulary, such as a CLIP, knows a text if the images nearest to it stand out
    from all images more than those of made-up words do. Without more than `BEST` images nothing is
    said against a text.
    """
    if not texts:
        return []
    vectors = encode_texts(model, texts)
    if isinstance(model, Vocabulary):
        scores = [model.familiarity(text) for text in texts]
        is_known = [score >= MIN_FAMILIARITY for score in scores]
    elif image_vectors is None or len(image_vectors) <= BEST:
        scores, is_known = [0.0] * len(texts), [True] * len(texts)
    else:
        images = sample_rows(image_vectors)
        null = _contrast(_made_up_words(model).vectors @ images.T)  # (NONSENSE,)
        reached = _contrast(vectors @ images.T)  # (N,)
        scores = ((reached - null.mean()) / null.std().clamp(min=1e-6)).tolist()
        is_known = (reached > null.quantile(NULL_QUANTILE)).tolist()
    return [
        TextFamiliarity(
            text,
            knows_it,
            score,
            _nearest(text, vector, model, score),
            _unknown_words(text, model) if knows_it else (),
        )
        for text, vector, knows_it, score in zip(texts, vectors, is_known, scores, strict=True)
    ]


def _nearest(text: str, vector: Tensor, model: ImageText, score: float) -> tuple[str, ...]:
    """Return names of similar meaning, or of similar spelling if no word of the text is known."""
    if not isinstance(model, Vocabulary):
        return ()
    if score > 0:
        memory = remember_words(model, model.known_names)
        rows = nearest_rows(vector[None], memory.vectors, NEAREST)[1][0].tolist()
        return tuple(unique_words(memory.words[row] for row in rows))
    if not MIN_LETTERS <= len(text) <= MAX_LETTERS:
        return ()
    return tuple(difflib.get_close_matches(text.casefold(), model.spellings, 2, SPELLING))


def _unknown_words(text: str, model: ImageText) -> tuple[str, ...]:
    return tuple(model.unknown_words(text)) if isinstance(model, Vocabulary) else ()


def _made_up_words(model: ImageText) -> WordMemory:
    rng = random.Random(0)
    lengths = [rng.randint(4, 12) for _ in range(NONSENSE)]
    return remember_words(
        model, ["".join(rng.choices(string.ascii_lowercase, k=length)) for length in lengths]
    )


def unrelated_texts() -> list[str]:
    """Return the first names of ImageNet's 1,000 classes: few of them are in a database."""
    return unique_words(names[0] for names in imagenet_names())


def sample_rows(image_vectors: Tensor) -> Tensor:
    """Return at most `MAX_SAMPLE` rows at equal distances."""
    step = max(-(-len(image_vectors) // MAX_SAMPLE), 1)
    return image_vectors[::step].float().cpu()


def best_mean(scores: Tensor) -> Tensor:
    """(..., images) -> (...): the mean over the `BEST` highest scores."""
    return scores.topk(min(BEST, scores.shape[-1])).values.mean(-1)


def _contrast(scores: Tensor) -> Tensor:
    """Some texts are near all images of a CLIP: how much the best ones stand out counts."""
    return best_mean(scores) - scores.mean(-1)


def unrelated_scores(model: ImageText, image_vectors: Tensor) -> Tensor:
    """Return what each unrelated text reaches with its best images of a database: (texts,).

    This null distribution changes with the database only: compute it once.
    """
    images = sample_rows(image_vectors)
    if not len(images):
        return torch.empty(0)
    return best_mean(_unrelated_words(model).vectors @ images.T)


def _unrelated_words(model: ImageText) -> WordMemory:
    return remember_words(model, unrelated_texts())


def cosine_scale(model: ImageText, texts: Sequence[str]) -> float:
    """Return what the cosines of a query with these texts are multiplied by to be comparable."""
    if not isinstance(model, ClassSpace) or not texts:
        return 1.0
    return sum(map(model.cosine_scale, texts)) / len(texts)


def likeness(
    model: ClassSpace, text: Tensor, cosines: Tensor, null_scores: Tensor, scale: float = 1.0
) -> float:
    """Return how much the best image is what the text (D,) names; cosines are multiplied by scale.

    0 at the median of unrelated texts, 1 at the cosine of an image of the nearest class.
    """
    lowest, highest = float(null_scores.median()), scale * model.highest_cosine(unit(text))
    return (scale * float(cosines.max()) - lowest) / max(highest - lowest, 1e-6)


@dataclass(frozen=True)
class ShareCalibration:
    """The share of right images at a score: a logistic curve of the standardized score.

    A score is standardized by what unrelated texts reach with their best images of the same
    database: (score - median) / standard deviation of their normal distribution, by quartiles.
    """

    slope: float = 0.57
    intercept: float = -2.21

    def standardize(self, scores: Tensor, null_scores: Tensor) -> Tensor:
        """Return standardized `scores`; `null_scores` are those of `unrelated_scores`."""
        low, middle, high = null_scores.quantile(torch.tensor([0.25, 0.5, 0.75])).tolist()
        deviation = max((high - low) / 1.349, 1e-6)  # 1.349: quartiles of the normal distribution
        return (scores - middle) / deviation

    def shares(self, scores: Tensor, null_scores: Tensor) -> Tensor:
        """Return the estimated share of right images at each score, 0 to 1."""
        if not null_scores.numel():
            return torch.zeros_like(scores)
        return (self.slope * self.standardize(scores, null_scores) + self.intercept).sigmoid()

    def is_chance(self, scores: Tensor, null_scores: Tensor) -> bool:
        """Return whether an unrelated text has, as a rule, better images than this text."""
        if not scores.numel() or not null_scores.numel():
            return True
        return bool(best_mean(scores) <= null_scores.median())

    def is_doubtful(self, shares: Tensor) -> Tensor:
        """Return whether unrelated texts, as a rule, reach these shares with their best images."""
        return shares <= torch.tensor(self.intercept).sigmoid()


class ScoreJudge:
    """Judges the texts and the scores of searches in one index, by a sample of its images."""

    def __init__(self, store: Store, model: ImageText) -> None:
        self.store, self.model, self.calibration = store, model, ShareCalibration()
        self.sampled_version: object = None  # of the index, when the sample was taken

    def _update(self) -> None:
        """Take another sample if the images of the index have changed."""
        if self.store.version == self.sampled_version:
            return
        rows = [image.row for image in self.store.sample(MAX_SAMPLE)]
        self.images = torch.empty(0, self.store.dim)
        if rows:
            self.images = self.store.vectors(torch.tensor(rows)).float()
        self.null_scores = unrelated_scores(self.model, self.images)
        self.sampled_version = self.store.version

    def assess(self, texts: Sequence[str]) -> list[TextFamiliarity]:
        if not texts:
            return []
        self._update()
        return assess_texts(texts, self.model, self.images)

    def shares(self, scores: Tensor, scale: float = 1.0) -> Tensor | None:
        """Return the estimated share of right images at each cosine of a text; None if unknown.

        It is unknown if the index is so large and remote that no sample can be taken.
        """
        self._update()
        if not len(self.images):
            return None
        shares = self.calibration.shares(scale * scores.double(), self.null_scores)
        # Far from the null distribution shares are equal in floating point: the cosine decides.
        return (1 - TIE_WEIGHT) * shares + TIE_WEIGHT * (1 + scores) / 2

    def is_absent(self, direction: Tensor, cosines: Tensor, scale: float = 1.0) -> bool:
        """Return whether even the best image is unlike what the text (D,) names.

        False if the model does not place images between classes.
        """
        if not isinstance(self.model, ClassSpace):
            return False
        self._update()
        if not len(cosines) or not len(self.images):
            return False
        return likeness(self.model, direction, cosines, self.null_scores, scale) < MIN_LIKENESS
