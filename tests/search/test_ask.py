"""A question finds what the scores say, cut, without twins and sorted, and tells why; bad ones get a sentence."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from cenote.data import read_folders
from cenote.search.ask import Question, ask, parse_term
from cenote.search.embedded import Embedded
from cenote.search.filters import Filter
from cenote.search.index import fill
from cenote.search.store import Description, Store

from .search_toys import COLOURS, SHAPES, WORDS, Toy, picture, words


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for k, colour in enumerate(COLOURS):
        for shape in SHAPES:
            for i in range(4):
                path = root / shape / f"{colour}{i}.png"
                path.parent.mkdir(exist_ok=True)
                picture(colour, shape, 100 * k + i).save(path)
                os.utime(path, (1000 * i + k, 1000 * i + k))
    return root


@pytest.fixture(scope="module")
def store(photos: Path) -> Store:
    memory = words()
    made = Description("toy", "toy 1", 6, words={"name": "w", "digest": memory.digest, "n": 3})
    index = Embedded.open(photos.parent / "ix", made)
    assert fill(index, read_folders(photos), Toy(), memory, source=str(photos)).embedded == 32  # type: ignore[arg-type]
    return index


def found(store: Store, **asked: object) -> list[str]:
    answer = ask(Question(**asked), store, Toy(), words())  # type: ignore[arg-type]
    return [f"{Path(result.entry.path).parent.name}/{Path(result.entry.path).stem}" for result in answer.results]


def test_by_text_by_image_and_by_both(photos: Path, store: Store, tmp_path: Path) -> None:
    assert all("blue" in name for name in found(store, texts=("blue",), top=8))
    outside = tmp_path / "mine.png"
    picture("green", "square", 999).save(outside)
    assert {name[:-1] for name in found(store, images=(outside,), top=4)} == {"square/green"}
    few = {"k": 4}  # there are but four of each; of seven words FreeDom takes one an image by itself
    for method, options in (("auto", few), ("freedom", few), ("weicom", {}), ("sum", {})):
        both = found(store, images=(outside,), texts=("stripes",), top=4, method=method, options=options)
        assert {name[:-1] for name in both} == {"stripes/green"}, method
    answer = ask(Question((outside,), ("stripes",)), store, Toy(), words())  # type: ignore[arg-type]
    assert answer.method == "freedom" and answer.why["n"] == 1 and answer.why["words"][0]["word"] == "green"
    assert ask(Question((outside,), ("stripes",)), store, Toy()).method == "weicom"  # type: ignore[arg-type]


def test_weights_and_negative_terms(store: Store) -> None:
    assert all(name.startswith("stripes") for name in found(store, texts=("red", "stripes^3"), top=4))
    assert all(name.startswith("square/red") for name in found(store, texts=("red^3", "square"), top=4))
    assert all(name.startswith("square/red") for name in found(store, texts=("red",), without=("stripes",), top=4))
    assert parse_term(" a dog^0.5 ") == ("a dog", 0.5) and parse_term("x") == ("x", 1.0)
    assert parse_term("c^3 code^2") == ("c^3 code", 2.0)
    for wrong in (
        "",
        "^2",
        "dog^0",
        "dog^1.2.3",
        "dog^-2",
        "dog^x",
        "dog^",
        "dog^inf",
        "dog^nan",
        "dog^1001",
        "dog^1e-9",
    ):
        with pytest.raises(ValueError, match=r"search term"):
            parse_term(wrong)


def test_what_is_not_wanted_leaves_the_image_s_subject(photos: Path, store: Store) -> None:
    mine = photos / "square" / "green0.png"
    asked = {"images": (mine,), "without": ("square",), "top": 4}
    best = ask(Question(**asked, texts=("green",), options={"k": 4}), store, Toy(), words())  # type: ignore[arg-type]
    assert best.method == "freedom" and {Path(r.entry.path).stem[:-1] for r in best.results} == {"green"}
    assert {r.entry.label for r in best.results} == {"stripes"}
    assert ask(Question(**asked), store, Toy(), words()).method == "weicom"  # type: ignore[arg-type]


def test_freedom_s_memory_is_the_whole_index(photos: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"images": (photos / "square" / "red0.png",), "texts": ("stripes",), "method": "freedom"}
    every, some = (
        ask(Question(**asked, filter=chosen), store, Toy(), words())  # type: ignore[arg-type]
        for chosen in (Filter(), Filter(classes=("stripes",)))
    )
    assert some.why == every.why and {r.entry.label for r in some.results} == {"stripes"} and some.searched == 16
    seen: list[object] = []

    def composed(method: str, query: object, database: object, *_: object, **__: object) -> None:
        seen.append(database)
        raise KeyError

    # What a mapping was trained on is remembered by this store: a new view each time would train each time.
    monkeypatch.setitem(ask.__globals__, "compose", composed)
    for method in ("pic2word", "weicom"):
        with pytest.raises(KeyError):
            ask(Question(**{**asked, "method": method}), store, Toy(), words())  # type: ignore[arg-type]
    assert seen[0] is store and seen[1] is not store


def test_scores_are_cosines_best_first(store: Store) -> None:
    answer = ask(Question(texts=("red",), top=32, near_duplicates="show"), store, Toy())  # type: ignore[arg-type]
    scores = [result.score for result in answer.results]
    assert scores == sorted(scores, reverse=True) and len(scores) == 32 and answer.exact
    rows = [store.known()[result.entry.path].row for result in answer.results]
    assert np.allclose(scores, store.vectors(torch.tensor(rows)) @ Toy().embed_texts(["red"])[0], atol=1e-6)


def test_cut_off_then_sorted(store: Store) -> None:
    every = ask(Question(texts=("red",), top=32, near_duplicates="show"), store, Toy())  # type: ignore[arg-type]
    cut = every.results[7].score
    asked = {"texts": ("red",), "cut": cut, "top": 5, "near_duplicates": "show"}
    answer = ask(Question(**asked, sort="date"), store, Toy())  # type: ignore[arg-type]
    assert answer.relevant == 8 and len(answer.results) == 5
    dates = [result.entry.date for result in answer.results]
    assert dates == sorted(dates, reverse=True)
    best = {result.entry.path for result in every.results[:5]}
    assert {result.entry.path for result in answer.results} == best  # the most relevant, in another order
    names = found(store, **asked, sort="name")
    assert [name.split("/")[1] for name in names] == sorted(name.split("/")[1] for name in names)
    sizes = [r.entry.size for r in ask(Question(**asked, sort="size"), store, Toy()).results]  # type: ignore[arg-type]
    assert sizes == sorted(sizes, reverse=True)
    assert ask(Question(texts=("red",), cut=2.0), store, Toy()).results == []  # type: ignore[arg-type]


def test_filters_hold(photos: Path, store: Store) -> None:
    assert all(name.startswith("stripes") for name in found(store, texts=("red",), filter=Filter(classes=("stripes",))))
    assert found(store, texts=("red",), filter=Filter(folders=(str(photos / "square"),)), top=2)[0].startswith(
        "square/red"
    )
    late = Filter(since=3000.0)
    assert all(name.endswith("3") for name in found(store, images=(photos / "square" / "red0.png",), filter=late))
    assert found(store, texts=("red",), filter=Filter(classes=("none",))) == []


def test_a_missing_file_is_marked(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    picture("red", "square", 1).save(tmp_path / "x" / "a.png")
    picture("blue", "square", 2).save(tmp_path / "x" / "b.png")
    index = Embedded.open(tmp_path / "ix", Description("toy", "toy 1", 6))
    fill(index, read_folders(tmp_path / "x"), Toy())  # type: ignore[arg-type]
    (tmp_path / "x" / "a.png").unlink()
    answer = ask(Question(texts=("red",)), index, Toy())  # type: ignore[arg-type]
    assert [(Path(r.entry.path).name, r.missing) for r in answer.results] == [("a.png", True), ("b.png", False)]


def test_why(store: Store, photos: Path) -> None:
    mine = photos / "square" / "red0.png"
    freedom = ask(Question((mine,), ("stripes",)), store, Toy(), words()).why  # type: ignore[arg-type]
    assert freedom["words"][0]["word"] in WORDS and freedom["terms"] == [{"text": "stripes", "weight": 1.0}]
    assert all(os.path.exists(path) for path in freedom["proxies"]) and str(mine) not in freedom["proxies"]
    weicom = ask(Question((mine,), ("stripes",), options={"weight": 0.4}), store, Toy(), words()).why  # type: ignore[arg-type]
    assert weicom["method"] == "weicom" and weicom["weight"] == 0.4

    twice = ask(Question(texts=("red", "red", "blue"), without=("red",)), store, Toy()).why  # type: ignore[arg-type]
    assert [(t["text"], t["weight"]) for t in twice["terms"]] == [("red", 1), ("red", 1), ("blue", 1), ("red", -1)]


def test_the_question_s_own_image_is_not_counted(store: Store, photos: Path) -> None:
    asked = {"images": (photos / "square" / "red0.png",), "cut": 0.9999}
    answer = ask(Question(**asked), store, Toy())  # type: ignore[arg-type]
    assert answer.relevant == len(answer.results) == 0
    assert ask(Question(**asked, near_duplicates="show"), store, Toy()).relevant == 1  # type: ignore[arg-type]


def test_scores_from_a_mean_are_the_formula_s(store: Store, photos: Path) -> None:
    mine = photos / "square" / "red0.png"
    asked = Question((mine,), ("stripes",), method="normalised-sum", top=32, near_duplicates="show")
    answer = ask(asked, store, Toy())  # type: ignore[arg-type]
    x = store.vectors(torch.arange(32)).double()
    s_t = x @ Toy().embed_texts(["stripes"])[0].double()
    s_i = x @ x[store.known()[str(mine)].row]
    expected = (s_t - s_t.mean()) / s_t.std() + (s_i - s_i.mean()) / s_i.std()
    rows = [store.known()[result.entry.path].row for result in answer.results]
    assert np.allclose([result.score for result in answer.results], expected[rows], atol=1e-4)


def test_candidates_give_what_a_scan_gives(store: Store, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = (photos / "square" / "red0.png",)
    for method in ("weicom", "freedom", "sum", "product", "normalised-sum"):
        asked = {"images": mine, "texts": ("stripes",), "method": method, "top": 6}
        scanned = found(store, **asked)
        with monkeypatch.context() as patch:
            patch.setattr(Embedded, "scan", lambda self, vectors: None)
            assert not ask(Question(**asked), store, Toy(), words()).exact  # type: ignore[arg-type]
            assert found(store, **asked) == scanned


def test_bad_questions(store: Store, tmp_path: Path, photos: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    other = Toy()
    other.name, other.identity = "other", "other 1"
    cases: list[tuple[dict[str, object], str]] = [
        ({}, "an empty question finds nothing"),
        ({"texts": ("a",), "sort": "colour"}, "sorted by score, date, name, size"),
        ({"texts": ("a",), "top": 0}, "top is a whole number"),
        ({"texts": ("a",), "near_duplicates": "eat"}, "hidden or shown"),
        ({"texts": ("a",), "cut": float("nan")}, "the cut-off is a number"),
        ({"texts": ("red",), "without": ("red",)}, "cancel each other out"),
        ({"texts": ("a",), "images": (tmp_path / "none.png",), "method": "text"}, "'text' does not look at an image"),
        ({"texts": ("a",), "images": (tmp_path / "none.png",), "method": "image"}, "'image' does not look at a text"),
        ({"texts": ("a",), "options": {"weight": 0.3}}, "'text' has no option 'weight'"),
        ({"texts": ("a",), "method": "freedm"}, "did you mean 'freedom'"),
        ({"texts": ("a",), "method": "weicom"}, "needs an image"),
        ({"images": (tmp_path / "none.png",)}, "No such file"),
        ({"images": (tmp_path / "broken.png",)}, "not an image in a known format"),
        ({"images": (tmp_path,)}, "directory"),
    ]
    for asked, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            ask(Question(**asked), store, Toy(), words())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"was made with the model 'toy', not with 'other'"):
        ask(Question(texts=("a",)), store, other)  # type: ignore[arg-type]
    other.identity = "toy 2"
    with pytest.raises(ValueError, match="other weights of that name"):
        ask(Question(texts=("a",)), store, other)  # type: ignore[arg-type]
    empty = Embedded.open(tmp_path / "empty", Description("toy", "toy 1", 6))
    with pytest.raises(ValueError, match="holds no images"):
        ask(Question(texts=("red",)), empty, Toy())  # type: ignore[arg-type]
