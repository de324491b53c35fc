"""Doubt: texts that a model knows or not, and the share of right images at a score."""

import zlib
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from cenote.models.image_text import Vocabulary
from cenote.models.image_text.small_clip import SmallClip
from cenote.models.image_text.text_encoder import TextTower, Words
from cenote.models.image_text.text_space import TextSpace
from cenote.search.doubt import (
    BEST,
    MAX_SAMPLE,
    ShareCalibration,
    assess_texts,
    best_mean,
    sample_rows,
    unrelated_scores,
)
from cenote.unit import unit
from tests.toy_models import COLOURS, narrow_resnet

DIM = 32


class ColourClip:
    """A model without a vocabulary: a colour has a direction, any other text a random one."""

    name = identity = "colour clip"
    dim = DIM

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        return torch.cat([direction(text) for text in texts])


def direction(text: str) -> Tensor:
    if text in COLOURS:
        return torch.eye(DIM)[list(COLOURS).index(text)][None]
    generator = torch.Generator().manual_seed(zlib.crc32(text.encode()))
    return unit(torch.randn(1, DIM, generator=generator))


def pictures(colours: Sequence[str], count: int = 50) -> Tensor:
    noise = 0.1 * torch.randn(count * len(colours), DIM, generator=torch.manual_seed(0))
    return unit(torch.cat([direction(c).expand(count, DIM) for c in colours]) + noise)


@pytest.fixture(scope="module")
def text_space() -> TextSpace:
    return TextSpace()


def test_text_space_knows_its_classes_and_their_relatives(text_space: TextSpace) -> None:
    texts = ["Dalmatian", "dogs", "two cats on a sofa", "red car", "a photo of a dolphin", "wrench"]
    for familiarity in assess_texts(texts, text_space):
        assert familiarity.known, familiarity
        assert len(familiarity.nearest) == 5
    (dolphin,) = assess_texts(["dolphin"], text_space)
    assert dolphin.nearest[0] in ("killer whale", "grey whale")
    assert dolphin.score == pytest.approx(1)  # the killer whale is one


def test_text_space_does_not_know_nonsense_and_other_languages(text_space: TextSpace) -> None:
    texts = [
        "qwertyzxcv",
        "yin yang",
        "x",
        "Löwenzahn",
        "хлеб",
        "面包",
        "!?",
        "happiness",
        "a photo of",
    ]
    for familiarity in assess_texts(texts, text_space):
        assert not familiarity.known, familiarity
    (hammer,) = assess_texts(["hamer"], text_space)
    assert not hammer.known and "hammer" in hammer.nearest[:2]  # spelled alike


def test_long_texts_and_no_texts(text_space: TextSpace) -> None:
    assert assess_texts([], text_space) == []
    dogs, letters = assess_texts(["dog " * 2500, "x" * 10_000], text_space)
    assert dogs.known and not letters.known


def test_a_small_clip_knows_the_words_of_its_training() -> None:
    image, words = narrow_resnet("gap"), Words.of(["a photo of a cat", "a red square"])
    tower = TextTower(len(words), image.vector_dim, context=8, width=16, layers=1, heads=2)
    model = SmallClip(image, tower, words, things=["cat", "square"]).eval()
    assert isinstance(model, Vocabulary)
    texts = ["a photo of a cat", "red cats", "zxq", "a photo of a zxq"]
    familiarities = assess_texts(texts, model)
    assert [familiarity.known for familiarity in familiarities] == [True, True, False, False]
    assert set(familiarities[0].nearest) == {"cat", "square"}


def test_a_clip_knows_texts_whose_images_are_nearer_than_those_of_made_up_words() -> None:
    model, texts = ColourClip(), ["red", "green", "blue", "qwertyzxcv", "a b c"]
    assert not isinstance(model, Vocabulary)
    familiarities = assess_texts(texts, model, pictures(["red", "green"]))  # type: ignore[arg-type]
    assert [familiarity.known for familiarity in familiarities] == [True, True, False, False, False]
    red, _, blue, *_ = familiarities
    assert red.score > 3 > blue.score  # standard deviations
    assert all(familiarity.known for familiarity in assess_texts(texts, model))  # type: ignore[arg-type]
    for images in (torch.empty(0, DIM), pictures(["red"], 1)):
        assert len(assess_texts(texts, model, images)) == len(texts)  # type: ignore[arg-type]


def test_standardized_scores_by_hand() -> None:
    """Five unrelated texts: median 0.3, quartiles 0.2 and 0.4."""
    null = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5])[:, None].expand(5, 12)
    curve = ShareCalibration(slope=2.0, intercept=-1.0)
    standardized = curve.standardize(torch.tensor([0.3, 0.5]), null)
    torch.testing.assert_close(standardized, torch.tensor([0.0, 1.349]))
    expected = torch.tensor([1 / (1 + 2.718281828), 1 / (1 + 2.718281828 ** -(2 * 1.349 - 1))])
    torch.testing.assert_close(curve.shares(torch.tensor([0.3, 0.5]), null), expected)
    assert curve.is_chance(torch.tensor([0.9, *[0.1] * 20]), null)  # one image is not ten
    assert not curve.is_chance(torch.full((20,), 0.31), null)


def test_shares_rise_with_scores_and_tell_what_is_in_the_database() -> None:
    model, images, curve = ColourClip(), pictures(["red", "green"]), ShareCalibration()
    null = unrelated_scores(model, images)  # type: ignore[arg-type]
    red, blue = (images @ direction(colour)[0] for colour in ("red", "blue"))
    assert not curve.is_chance(red, null)
    assert curve.shares(red, null)[:50].min() > curve.shares(red, null)[50:].max()
    assert curve.shares(red, null).max() > 0.6 > 0.2 > curve.shares(blue, null).max()


@pytest.mark.parametrize("count", [0, 1])
def test_empty_and_tiny_databases(count: int) -> None:
    images, curve = pictures(["red"], count), ShareCalibration()
    null = unrelated_scores(ColourClip(), images)  # type: ignore[arg-type]
    scores = images @ direction("red")[0]
    shares = curve.shares(scores, null)
    assert shares.shape == (count,) and bool(torch.isfinite(shares).all())
    assert curve.is_chance(scores, null) == (count == 0)


def test_samples_and_means_of_the_best() -> None:
    rows = torch.arange(2.0 * MAX_SAMPLE + 1)[:, None]
    sample = sample_rows(rows)
    assert len(sample) <= MAX_SAMPLE and sample[-1] > 2 * MAX_SAMPLE - 3
    assert len(sample_rows(rows[:0])) == 0
    assert float(best_mean(torch.arange(BEST + 5.0))) == pytest.approx(5 + (BEST - 1) / 2)
