"""Searches that are saved beside an index: what comes back, after files moved, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest

from cenote.data import read_folders
from cenote.search.index import update_index
from cenote.search.local_store import LocalStore
from cenote.search.query import SearchRequest
from cenote.search.saved import MAX_SEARCHES, SavedSearches, make_request
from cenote.search.store import Filter, IndexDescription
from tests.toy_models import ColourModel, picture


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    for name in ("red", "blue", "green"):
        path = tmp_path / "photos" / "square" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(name, "square", 1).save(path)
    index = LocalStore.open(tmp_path / "ix", IndexDescription("toy", "toy 1", 6))
    update_index(index, read_folders(tmp_path / "photos"), ColourModel())  # type: ignore[arg-type]
    return index


def test_a_request_comes_back(store: LocalStore, tmp_path: Path) -> None:
    saved = SavedSearches(store)
    assert saved.read() == {}
    outside = tmp_path / "mine.png"
    picture("green", "stripes", 9).save(outside)
    request = SearchRequest(
        images=(0, str(outside)),
        texts=("dog^2", "été"),
        without=("cat",),
        method="weicom",
        top=7,
        cut=0.0,
        sort="date",
        near_duplicates="show",
        filter=Filter(("square",), since=0.0, largest=9),
        options={"weight": 0.25},
        like=(1,),
        unlike=(2,),
        region=((0.0, 0.25), (1.0, 0.0), (0.5, 1.0)),
    )
    saved.save(" a name ", request)
    saved.save("other", SearchRequest(texts=("dog",)))
    assert SavedSearches(store).load("a name") == request
    assert saved.read()["other"] == {"texts": ["dog"]}, "defaults are not stored"
    saved.delete("other")
    saved.delete("other")
    assert list(saved.read()) == ["a name"]


def test_images_of_the_index_are_found_after_they_moved(store: LocalStore, tmp_path: Path) -> None:
    path = store.images()[str(tmp_path / "photos/square/red.png")].entry.path
    SavedSearches(store).save("red", SearchRequest(images=(path,)))
    (tmp_path / "photos").rename(tmp_path / "moved")
    shutil.move(tmp_path / "ix", tmp_path / "moved" / "ix")
    store = LocalStore.open(tmp_path / "moved" / "ix")
    (row,) = SavedSearches(store).load("red").images
    assert isinstance(row, int)
    assert {image.row: name for name, image in store.images().items()}[row].endswith("red.png")


def test_other_options_replace_saved_ones() -> None:
    saved = SearchRequest(texts=("dog",), top=50, filter=Filter(("a",), domains=("d",)))
    options = {"texts": (), "top": 10, "cut": None, "sort": "name"}
    request = make_request(options, Filter(("b",)), saved)
    filter = Filter(("b",), domains=("d",))
    assert request == SearchRequest(texts=("dog",), top=10, sort="name", filter=filter)


def test_what_cannot_be_saved_or_loaded(store: LocalStore) -> None:
    saved, dog = SavedSearches(store), SearchRequest(texts=("dog",))
    with pytest.raises(ValueError, match="'dogs'"):
        saved.load("dogs")
    saved.save("cats", SearchRequest(texts=("cat",)))
    with pytest.raises(ValueError, match=r"'dogs'.*cats"):
        saved.load("dogs")
    for name in ("", "  ", "x" * 81, "a\nb"):
        with pytest.raises(ValueError, match="name"):
            saved.save(name, dog)
    with pytest.raises(ValueError, match="uploaded"):
        saved.save("photo", SearchRequest(images=(b"content",)))
    many = {str(i): {"texts": ["dog"]} for i in range(MAX_SEARCHES)}
    saved.path.write_text(json.dumps(many))
    with pytest.raises(ValueError, match=str(MAX_SEARCHES)):
        saved.save("one more", dog)
    saved.save("7", dog)  # replaced
    for content in ("{", "[1]", '{"a": 3}'):
        saved.path.write_text(content)
        with pytest.raises(ValueError, match=r"searches\.json"):
            saved.save("dogs", dog)
        assert saved.path.read_text() == content, "nothing is lost"
    saved.path.write_text(
        '{"a": {"colour": "red"}, "b": {"images": [{"path": "x"}]}, '
        '"c": {"texts": ["x"], "region": [[0], [1], [1]]}}'
    )
    for name in ("a", "b", "c"):
        with pytest.raises(ValueError, match=r"searches\.json"):
            saved.load(name)
