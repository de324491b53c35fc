"""Wrong options, classes and domains of a question are refused before the model is loaded."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cenote.models import image_text
from cenote.search.load import check_filter
from cenote.search.local_store import LocalStore
from cenote.search.methods import METHODS
from cenote.search.query import Searcher, SearchRequest, choose_method
from cenote.search.store import Filter, IndexDescription

from .test_local_store import MADE, entry, filled, ids, unit_rows


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def never(name: str) -> None:
        raise AssertionError(f"{name} was loaded")

    monkeypatch.setattr(image_text, "create_image_text", never)
    return


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("freedom:k=0", r"\bk\b.*\b0\b"),
        ("freedom:n=-1", r"\bn\b.*-1\b"),
        ("freedom-e+:m=0", r"\bm\b.*\b0\b"),
        ("freedom:weights=many", "weights"),
        ("freedom:memory=laion", "memory"),
        ("freedom:template={word}", "template.*{text}"),
        ("weicom:weight=3", r"weight.*\b3\b"),
        ("weicom:lam=3", "'weicom'.*'lam'"),
        ("basic:contrast=2", r"contrast.*\b2\b"),
        ("basic:components=0", r"components.*\b0\b"),
        ("basic:expansion=-1", r"expansion.*-1\b"),
        ("basic:harris=-1", r"harris.*-1\b"),
        ("searle:concepts=0", r"concepts.*\b0\b"),
        ("searle:batch=0", r"batch.*\b0\b"),
        ("searle:lr=0", r"\blr\b.*\b0\b"),
        ("searle:steps=-1", r"steps.*-1\b"),
        ("pic2word:steps=0", r"steps.*\b0\b"),
        ("pic2word:seed=-1", r"seed.*-1\b"),
        ("pic2word:template=a photo", "template.*{text}"),
    ],
)
def test_options(method: str, values: str) -> None:
    with pytest.raises(ValueError, match=values):
        choose_method(method, None)


def test_options_given_in_python() -> None:
    with pytest.raises(ValueError, match=r"\bk\b.*\b0\b"):
        SearchRequest((Path("none.png"),), ("a",), method="freedom", options={"k": 0})
    request = SearchRequest((Path("none.png"),), ("a",), options={"k": 0})
    with pytest.raises(ValueError, match=r"\bk\b.*\b0\b"):
        request.resolve_method(has_words=True)


def test_defaults_are_good() -> None:
    for name, method in METHODS.items():
        method.check(name, {})


def test_a_class_that_no_image_has(tmp_path: Path) -> None:
    filled(tmp_path / "ix")  # classes c0, c1, c2; domains photo, sketch

    def assert_refused(values: str, index: str = "ix", **chosen: tuple[str, ...]) -> None:
        with pytest.raises(ValueError, match=values):
            check_filter(Filter(**chosen), LocalStore.open(tmp_path / index))  # type: ignore[arg-type]

    assert_refused(r"/ix\b.*'C1'.*'c1'.*c0, c1, c2", classes=("c0", "C1"))
    assert_refused(r"'zebra'.*c0, c1, c2", classes=("zebra",))
    assert_refused(r"'skech'.*'sketch'.*photo, sketch", classes=("c0",), domains=("skech",))
    plain = LocalStore.open(tmp_path / "plain", IndexDescription("toy", "toy-1", MADE.dim))
    many = LocalStore.open(tmp_path / "many", IndexDescription("toy", "toy-1", MADE.dim))
    with plain.writer() as writer:
        writer.put([entry(0)._replace(label=None)], unit_rows(1))
    with many.writer() as writer:
        writer.put([entry(i)._replace(label=f"n{i:02d}") for i in range(15)], unit_rows(15))
    assert_refused("'dog'", "plain", classes=("dog",))
    assert_refused(r"'dog'.*n00, .*, n11\b.*\b3\b", "many", classes=("dog",))
    index = Searcher.open(str(tmp_path / "ix"))
    check_filter(Filter(classes=("c1",), domains=("photo",)), index.store)
    with pytest.raises(AssertionError, match="toy"):
        index.ask(SearchRequest(texts=("a",)))


def test_a_class_leaves_with_its_last_image(tmp_path: Path) -> None:
    index, _ = filled(tmp_path / "ix", 3)
    assert index.distinct_values("label") == ["c0", "c1", "c2"] and index.distinct_values(
        "domain"
    ) == ["photo", "sketch"]
    with index.writer() as writer:
        writer.remove([entry(1).path])
        writer.put([entry(5)._replace(label="new")], unit_rows(1), ids(1))
    assert index.distinct_values("label") == ["c0", "c2", "new"]
