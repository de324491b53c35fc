"""What is wrong with a question is said before the model is loaded: options, classes, domains."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cenote.models import image_text
from cenote.search.ask import Question
from cenote.search.compose import METHODS
from cenote.search.embedded import Embedded
from cenote.search.filters import Filter
from cenote.search.opening import choose_method, open_for
from cenote.search.store import Description

from .test_embedded import MADE, entry, filled, ids, unit_rows


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def never(name: str) -> None:
        raise AssertionError(f"{name} was loaded")

    monkeypatch.setattr(image_text, "create_image_text", never)
    return


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("freedom:k=0", "k is a whole number at least 1, got 0"),
        ("freedom:n=-1", "n is a whole number at least 1"),
        ("freedom-e+:m=0", "m is a whole number at least 1"),
        ("freedom:weights=many", "weights are frequency or uniform"),
        ("freedom:memory=laion", "the visual memory is database, none or a database"),
        ("freedom:template={word}", "a template holds {word} and {text}"),
        ("weicom:weight=3", "the weight of the text is a number at least 0 and at most 1, got 3"),
        ("weicom:lam=3", "'weicom' has no option 'lam'"),
        ("basic:contrast=2", "contrast is a number at least 0 and at most 1"),
        ("basic:components=0", "components is a whole number at least 1"),
        ("basic:expansion=-1", "expansion is a whole number at least 0"),
        ("basic:harris=-1", "harris is a number at least 0"),
        ("searle:concepts=0", "concepts is a whole number at least 1"),
        ("searle:batch=0", "batch is a whole number at least 1"),
        ("searle:lr=0", "lr is a number above 0"),
        ("searle:steps=-1", "steps is a whole number at least 0"),
        ("pic2word:steps=0", "steps is a whole number at least 1"),
        ("pic2word:seed=-1", "seed is a whole number at least 0"),
        ("pic2word:template=a photo", r"a template has {text}, and \$ once"),
    ],
)
def test_options(method: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        choose_method(method, None)


def test_options_given_in_python(tmp_path: Path) -> None:
    filled(tmp_path / "ix")
    asked = Question((tmp_path / "none.png",), ("a",), method="freedom", options={"k": 0})
    with pytest.raises(ValueError, match="k is a whole number at least 1"):
        open_for(asked, str(tmp_path / "ix"))


def test_defaults_are_good() -> None:
    for name, method in METHODS.items():
        method.check(name, {})


def test_a_class_that_no_image_has(tmp_path: Path) -> None:
    filled(tmp_path / "ix")  # classes c0, c1, c2; domains photo, sketch

    def refused(sentence: str, index: str = "ix", **chosen: tuple[str, ...]) -> None:
        with pytest.raises(ValueError, match=sentence):
            open_for(Question(texts=("a",), filter=Filter(**chosen)), str(tmp_path / index))  # type: ignore[arg-type]

    refused(r"no image of \S+/ix has the class 'C1'; did you mean 'c1'\? \(c0, c1, c2\)", classes=("c0", "C1"))
    refused(r"has the class 'zebra' \(c0, c1, c2\)", classes=("zebra",))
    refused(r"has the domain 'skech'; did you mean 'sketch'\? \(photo, sketch\)", classes=("c0",), domains=("skech",))
    plain = Embedded.open(tmp_path / "plain", Description("toy", "toy-1", MADE.dim))
    many = Embedded.open(tmp_path / "many", Description("toy", "toy-1", MADE.dim))
    with plain.writing() as writer:
        writer.put([entry(0)._replace(label=None)], unit_rows(1))
    with many.writing() as writer:
        writer.put([entry(i)._replace(label=f"n{i:02d}") for i in range(15)], unit_rows(15))
    refused("has the class 'dog': not one has a class", "plain", classes=("dog",))
    refused(r"'dog' \(n00, .*, n11 and 3 more\)", "many", classes=("dog",))
    with pytest.raises(AssertionError, match="toy was loaded"):
        open_for(Question(texts=("a",), filter=Filter(classes=("c1",), domains=("photo",))), str(tmp_path / "ix"))


def test_a_class_leaves_with_its_last_image(tmp_path: Path) -> None:
    index, _ = filled(tmp_path / "ix", 3)
    assert index.names("label") == ["c0", "c1", "c2"] and index.names("domain") == ["photo", "sketch"]
    with index.writing() as writer:
        writer.remove([entry(1).path])
        writer.put([entry(5)._replace(label="new")], unit_rows(1), ids(1))
    assert index.names("label") == ["c0", "c2", "new"]
