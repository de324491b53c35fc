"""What the page suggests: words that find their images, images of many classes."""

from pathlib import Path

import pytest

from cenote.data import read_folders
from cenote.search.index import update_index
from cenote.search.local_store import LocalStore
from cenote.search.query import Searcher
from cenote.search.store import ImageEntry, IndexDescription, IndexedImage
from cenote.web.suggestions import class_of, spread, spread_over_classes, suggest, words_of
from tests.toy_models import COLOURS, SHAPES, ColourModel, picture


def images(labels: str) -> list[IndexedImage]:
    return [IndexedImage(row, ImageEntry(f"/{row}", "", label=x)) for row, x in enumerate(labels)]


def test_images_are_spread_over_classes() -> None:
    sample = images("aaaaaaaabbbbc")
    labels = [image.entry.label for image in spread_over_classes(sample, 3)]
    assert labels == ["a", "b", "c"]
    assert [image.entry.label for image in spread_over_classes(sample, 5)] == [*"abcab"]
    preferred = spread_over_classes(sample, 2, preferred=["b", "c", "d"])
    assert [image.entry.label for image in preferred] == ["b", "c"]
    assert [i.entry.label for i in spread_over_classes(sample, 1, ["unknown"])] == ["b"]
    assert spread_over_classes([], 3) == []
    assert len(spread_over_classes(images("ab"), 9)) == 2
    assert spread(range(10), 2) == [2, 7] and spread(range(2), 5) == [0, 1]


def test_a_folder_replaces_a_class() -> None:
    sample = [IndexedImage(0, ImageEntry("/photos/dog/1.jpg", "")), *images("a")]
    assert [class_of(image) for image in sample] == ["dog", "a"]


def test_words_of_a_folder() -> None:
    names = ["001.Black_footed_Albatross", "dog", "_", "3"]
    assert [words_of(name) for name in names] == ["Black footed Albatross", "dog", "_", "3"]


@pytest.fixture
def searcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Searcher:
    """Images in folders by colour, and some in one whose name the model does not know."""
    for colour in COLOURS:
        for shape in SHAPES:
            for i in range(3):
                path = tmp_path / "photos" / colour / f"{shape}{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                picture(colour, shape, i).save(path)
    unknown = tmp_path / "photos" / "aaa" / "first.png"
    unknown.parent.mkdir()
    picture(next(iter(COLOURS)), SHAPES[0], 50).save(unknown)
    index = LocalStore.open(tmp_path / "ix", IndexDescription("toy", "toy 1", 6))
    update_index(index, read_folders(tmp_path / "photos"), ColourModel())  # type: ignore[arg-type]
    searcher = Searcher(index)
    searcher.__dict__["model"] = ColourModel()
    return searcher


def test_words_that_the_model_knows(searcher: Searcher) -> None:
    words, example = suggest(searcher, searcher.store.sample(1000))
    assert set(words) == set(COLOURS), "not the first folder, which no text finds"
    assert example is None, "without domains"
    assert suggest(searcher, []) == ([], None)
