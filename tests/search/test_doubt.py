"""Doubt: texts that a model knows or not, and the share of right images at a score."""

import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cenote.models.image_text import Vocabulary
from cenote.models.image_text.small_clip import SmallClip
from cenote.models.image_text.synsets import imagenet_synsets
from cenote.models.image_text.text_encoder import TextTower, Words
from cenote.models.image_text.text_space import TextSpace
from cenote.search.doubt import (
    BEST,
    MAX_SAMPLE,
    MIN_LIKENESS,
    ScoreJudge,
    ShareCalibration,
    assess_texts,
    best_mean,
    sample_rows,
    unrelated_scores,
)
from cenote.search.local_store import LocalStore
from cenote.search.query import SearchAnswer, SearchRequest, ask
from cenote.search.store import ImageEntry, IndexDescription
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
    for text, name in (("hamer", "hammer"), ("hors", "horse"), ("Elefant", "elephant")):
        (typo,) = assess_texts([text], text_space)
        assert not typo.known and name in typo.nearest  # spelled alike
    for familiarity in assess_texts(["qwertyzxcv", "happiness", "хлеб", "xq"], text_space):
        assert familiarity.nearest == ()


def test_grass_is_not_a_plural(text_space: TextSpace) -> None:
    gras, glasses = assess_texts(["gras", "sunglasses"], text_space)
    assert not gras.known and glasses.known


def test_names_in_other_forms() -> None:
    synsets = imagenet_synsets()
    for text, name in (
        ("cell phone", "cellphone"),
        ("wheaten terrier", "soft coated wheaten terrier"),  # the end of the name of a class
        ("people", "person"),
        ("honey bees", "honeybee"),
    ):
        (phrase,) = synsets.phrases(text)
        assert phrase.synsets == tuple(synsets.named(name)), text
    assert synsets.named("s p a") == []


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
    null = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5])
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


@pytest.fixture(scope="module")
def dogs(text_space: TextSpace, tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    """An index of ImageNet's dogs, as the model embeds them, in folders without their names."""
    places = torch.arange(151, 269)  # Chihuahua to Mexican hairless
    noise = 0.05 * torch.randn(len(places), text_space.dim, generator=torch.manual_seed(0))
    description = IndexDescription("text-space", text_space.identity, text_space.dim)
    index = LocalStore.open(tmp_path_factory.mktemp("dogs"), description)
    entries = [
        ImageEntry(f"/p/{'zxcvb' if i < 3 else 'photos'}/{i}.jpg", f"{i:032x}", look=i**5)
        for i in range(len(places))
    ]
    with index.writer() as writer:
        writer.put(entries, unit(text_space.classes[places] + noise))
    return index


def search(dogs: LocalStore, model: TextSpace, text: str) -> SearchAnswer:
    request = SearchRequest(texts=(text,), near_duplicates="show")
    return ask(request, dogs, model)


def test_a_search_by_a_known_text_has_shares_as_scores(
    dogs: LocalStore, text_space: TextSpace
) -> None:
    answer = search(dogs, text_space, "beagle")
    scores = [result.score for result in answer.results]
    assert answer.results[0].row == 162 - 151 and not answer.results[0].doubtful
    assert scores == sorted(scores, reverse=True) and 0 < scores[-1] < scores[0] < 1
    assert answer.notes == [] and answer.texts[0].known
    assert answer.why["nearest"][0] == "beagle" and len(answer.why["nearest"]) == 5


@pytest.mark.parametrize("text", ["church", "brown bear"])  # which is like a dog
def test_a_known_text_that_no_image_shows(
    dogs: LocalStore, text_space: TextSpace, text: str
) -> None:
    answer = search(dogs, text_space, text)
    assert answer.texts[0].known and all(result.doubtful for result in answer.results)
    assert answer.notes == [f'no image seems to show "{text}": these are the nearest']
    is_chance = ShareCalibration().is_doubtful(torch.tensor(answer.results[0].score))
    assert bool(is_chance) == (text == "church")


def test_a_text_whose_best_image_is_more_likely_wrong_than_right(
    dogs: LocalStore, text_space: TextSpace
) -> None:
    answer = search(dogs, text_space, "goat")
    best = max(result.score for result in answer.results)
    assert 0.3 < best < 0.5 and not answer.results[0].doubtful
    assert answer.notes == [f'perhaps no image shows "goat": the best score is {best:.2f}']


@pytest.mark.parametrize("text", ["dog", "dogs", "a photo of a dog", "black dog"])
def test_a_text_that_is_a_sum_of_classes_is_not_doubted(
    dogs: LocalStore, text_space: TextSpace, text: str
) -> None:
    answer = search(dogs, text_space, text)
    assert not any(result.doubtful for result in answer.results) and answer.notes == []
    assert answer.results[0].score > 0.3


def test_an_unknown_word_of_a_phrase_is_named(dogs: LocalStore, text_space: TextSpace) -> None:
    answer = search(dogs, text_space, "a qwertyzx dog near a qwertyzx")
    assert answer.results and answer.notes == [
        'the model does not know "qwertyzx": it searched for the other words'
    ]
    assert search(dogs, text_space, "a small dog in the snow").notes == []


def test_likeness_of_the_best_image_by_hand(dogs: LocalStore, text_space: TextSpace) -> None:
    """0 at the median of unrelated texts, 1 at the cosine of the nearest class."""
    judge, zebra = ScoreJudge(dogs, text_space), text_space.embed_texts(["zebra"])[0]
    median = float(unrelated_scores(text_space, dogs.vectors(dogs.rows)).median())
    highest = max(float(vector @ zebra / vector.norm()) for vector in text_space.classes)
    for likeness in (-0.5, 0.0, MIN_LIKENESS - 0.01, MIN_LIKENESS + 0.01, 1.0):
        best = median + likeness * (highest - median)
        cosines = torch.tensor([best - 0.2, best])
        assert judge.is_absent(3 * zebra, cosines) == (likeness < MIN_LIKENESS)
    assert not ScoreJudge(dogs, ColourClip()).is_absent(zebra, cosines)  # type: ignore[arg-type]


def test_nonsense_finds_nothing_but_texts(dogs: LocalStore, text_space: TextSpace) -> None:
    answer = search(dogs, text_space, "qwertyzxcv")
    (note,) = answer.notes
    assert answer.results == [] and '"qwertyzxcv"' in note and "nearest" not in note
    (note,) = search(dogs, text_space, "girafe").notes
    assert note.endswith("nearest words that it knows: giraffe")
    named = search(dogs, text_space, "zxcvb")
    assert sorted(result.row for result in named.results) == [0, 1, 2]
    assert not any(result.doubtful for result in named.results)
    (note,) = named.notes
    assert "stored" in note


def test_results_of_a_text_that_is_hardly_known_are_set_apart(
    dogs: LocalStore, text_space: TextSpace
) -> None:
    answer = search(dogs, text_space, "kitten")
    assert answer.results and all(result.doubtful for result in answer.results)
    (note,) = answer.notes
    assert "guess" in note


def test_the_sample_follows_the_index(text_space: TextSpace, tmp_path: Path) -> None:
    index = LocalStore.open(
        tmp_path, IndexDescription("text-space", text_space.identity, text_space.dim)
    )
    judge = ScoreJudge(index, text_space)
    assert judge.shares(torch.tensor([0.5])) is None
    with index.writer() as writer:
        writer.put([ImageEntry("/p/a.jpg", "0" * 32)], unit(text_space.classes[:1]))
    cosines = torch.tensor([0.1, 0.5])
    shares = judge.shares(cosines)
    assert shares is not None and 0 < float(shares[0]) < float(shares[1]) < 1
    with index.writer() as writer:  # exchange the image
        writer.put([ImageEntry("/p/a.jpg", "1" * 32)], unit(text_space.classes[500:501]))
    expected = ScoreJudge(index, text_space).shares(cosines)
    assert expected is not None and not torch.allclose(shares, expected)
    torch.testing.assert_close(judge.shares(cosines), expected)
