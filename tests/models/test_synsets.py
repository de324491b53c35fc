"""Synsets of ImageNet-21k: names in texts, and how close they are to the 1,000 classes."""

import math

import pytest
import torch

from cenote.models.image_text.synsets import POWER, Synsets, imagenet_synsets, plain


@pytest.fixture(scope="module")
def synsets() -> Synsets:
    return imagenet_synsets()


def named(synsets: Synsets, name: str, kind: str) -> int:
    """Return the synset of this name that is a kind of another."""
    (synset,) = (
        i
        for i in synsets.by_name[name]
        if any(kind in synsets.names[ancestor] for ancestor in synsets.ancestors[i])
    )
    return synset


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("Dogs", ["dogs"]),
        ("a photo of two dogs, on the sofa", ["dogs", "sofa"]),
        ("electric_guitar", ["electric guitar"]),
        ("black-footed albatross", ["black footed albatross"]),
        ("binocular", ["binocular"]),
        ("a photo of", []),
        ("!?", []),
    ],
)
def test_the_longest_names_are_found(synsets: Synsets, text: str, phrases: list[str]) -> None:
    assert [phrase.words for phrase in synsets.phrases(text)] == phrases
    assert all(phrase.synsets for phrase in synsets.phrases(text))


def test_words_that_are_not_in_the_list_have_no_synsets(synsets: Synsets) -> None:
    phrases = list(synsets.phrases("qwertyzxcv dog ωμέγα"))
    assert [(phrase.words, bool(phrase.synsets)) for phrase in phrases] == [
        ("qwertyzxcv", False),
        ("dog", True),
        ("ωμεγα", False),  # without its accent
    ]


@pytest.mark.parametrize(
    ("plural", "singular"),
    [("buses", "bus"), ("knives", "knife"), ("tomatoes", "tomato"), ("mice", "mouse"),
     ("children", "child"), ("horses", "horse"), ("shoes", "shoe"), ("cafés", "café")],
)  # fmt: skip
def test_plurals(synsets: Synsets, plural: str, singular: str) -> None:
    assert set(synsets.named(plain(singular))) <= set(synsets.named(plain(plural)))
    assert synsets.familiarity(plural) == synsets.familiarity(singular) > 0


def test_coverage_is_the_share_of_information_that_a_class_has(synsets: Synsets) -> None:
    """An emu is a ratite as the ostrich, a class, is; no class is an emu."""
    emu, ratite = named(synsets, "emu", "bird"), named(synsets, "ratite", "bird")
    counts = {
        synset: sum(synset in ancestors for ancestors in synsets.ancestors)
        for synset in (emu, ratite)
    }
    assert counts[emu] == 1
    total = sum(bool(definition) for definition in synsets.definitions)  # of ImageNet
    share = math.log(total / counts[ratite]) / math.log(total / counts[emu])
    assert synsets.coverage(emu) == pytest.approx(share, abs=1e-6)
    assert synsets.coverage(named(synsets, "ostrich", "bird")) == pytest.approx(1)
    assert synsets.coverage(named(synsets, "dog", "canine")) == pytest.approx(1)
    assert synsets.coverage(synsets.by_name["entity"][0]) == 0


def test_similarities_are_powers_of_the_information_in_common(synsets: Synsets) -> None:
    """Of two classes with one hypernym each, all the way up: information of birds / of one."""
    classes = [named(synsets, name, "bird") for name in ("ostrich", "hummingbird")]
    bird = named(synsets, "bird", "vertebrate")
    total = sum(bool(definition) for definition in synsets.definitions)
    kinds = [
        sum(i in synsets.ancestors[k] for k in range(len(synsets.names)) if synsets.definitions[k])
        for i in (bird, *classes)
    ]
    of_bird, *of_classes = [math.log(total / count) for count in kinds]
    features = synsets.features(classes)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(2))
    expected = (of_bird**2 / math.prod(of_classes)) ** (POWER / 2)
    assert float(features[0] @ features[1]) == pytest.approx(expected, rel=1e-4)


def test_what_classes_can_say_of_a_synset_has_length_one(synsets: Synsets) -> None:
    emu, entity = named(synsets, "emu", "bird"), synsets.by_name["entity"][0]
    rows = synsets.features([emu, entity])
    classes = synsets.features(synsets.classes)
    coefficients = torch.linalg.lstsq(classes.T.double(), rows.T.double(), driver="gelsd").solution
    projected = classes.T.double() @ coefficients
    assert float(projected[:, 0].norm()) == pytest.approx(1, abs=1e-4)
    assert not rows[1].any()  # it says nothing
