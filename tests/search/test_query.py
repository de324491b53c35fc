"""Questions of images, texts or both: results by score, cut off, without duplicates, filtered and sorted."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from cenote.data import read_folders
from cenote.search.index import update_index
from cenote.search.local_store import LocalStore
from cenote.search.query import SearchRequest, ask, parse_term
from cenote.search.store import Filter, IndexDescription, Store
from tests.toy_models import COLOURS, SHAPES, WORDS, ColourModel, picture, word_memory


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
    memory = word_memory()
    made = IndexDescription("toy", "toy 1", 6, words={"name": "w", "digest": memory.digest, "n": 3})
    index = LocalStore.open(photos.parent / "ix", made)
    assert (
        update_index(
            index, read_folders(photos), ColourModel(), memory, source=str(photos)
        ).embedded
        == 32
    )  # type: ignore[arg-type]
    return index


def found(store: Store, **asked: object) -> list[str]:
    answer = ask(SearchRequest(**asked), store, ColourModel(), word_memory())  # type: ignore[arg-type]
    return [
        f"{Path(result.entry.path).parent.name}/{Path(result.entry.path).stem}"
        for result in answer.results
    ]


def test_by_text_by_image_and_by_both(photos: Path, store: Store, tmp_path: Path) -> None:
    assert all("blue" in name for name in found(store, texts=("blue",), top=8))
    outside = tmp_path / "mine.png"
    picture("green", "square", 999).save(outside)
    assert {name[:-1] for name in found(store, images=(outside,), top=4)} == {"square/green"}
    few = {"k": 4}  # there are only four images of each kind
    for method, options in (("auto", few), ("freedom", few), ("weicom", {}), ("sum", {})):
        both = found(
            store, images=(outside,), texts=("stripes",), top=4, method=method, options=options
        )
        assert {name[:-1] for name in both} == {"stripes/green"}, method
    answer = ask(SearchRequest((outside,), ("stripes",)), store, ColourModel(), word_memory())  # type: ignore[arg-type]
    assert (
        answer.method == "freedom"
        and answer.why["n"] == 1
        and answer.why["words"][0]["word"] == "green"
    )
    assert ask(SearchRequest((outside,), ("stripes",)), store, ColourModel()).method == "weicom"  # type: ignore[arg-type]


def test_weights_and_negative_terms(store: Store) -> None:
    assert all(
        name.startswith("stripes") for name in found(store, texts=("red", "stripes^3"), top=4)
    )
    assert all(
        name.startswith("square/red") for name in found(store, texts=("red^3", "square"), top=4)
    )
    assert all(
        name.startswith("square/red")
        for name in found(store, texts=("red",), without=("stripes",), top=4)
    )
    assert parse_term(" a dog^0.5 ") == ("a dog", 0.5) and parse_term("x") == ("x", 1.0)
    assert parse_term("c^3 code^2") == ("c^3 code", 2.0)
    for wrong in (
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
        with pytest.raises(ValueError, match=re.escape(repr(wrong))):
            parse_term(wrong)
    with pytest.raises(ValueError, match="an empty text"):
        parse_term(" ")


def test_negative_terms_do_not_change_the_subject_of_the_image(photos: Path, store: Store) -> None:
    mine = photos / "square" / "green0.png"
    asked = {"images": (mine,), "without": ("square",), "top": 4}
    best = ask(
        SearchRequest(**asked, texts=("green",), options={"k": 4}),
        store,
        ColourModel(),
        word_memory(),
    )  # type: ignore[arg-type]
    assert best.method == "freedom" and {Path(r.entry.path).stem[:-1] for r in best.results} == {
        "green"
    }
    assert {r.entry.label for r in best.results} == {"stripes"}
    assert ask(SearchRequest(**asked), store, ColourModel(), word_memory()).method == "weicom"  # type: ignore[arg-type]


def test_freedom_s_memory_is_the_whole_index(photos: Path, store: Store) -> None:
    asked = {
        "images": (photos / "square" / "red0.png",),
        "texts": ("stripes",),
        "method": "freedom",
    }
    every, some = (
        ask(SearchRequest(**asked, filter=chosen), store, ColourModel(), word_memory())  # type: ignore[arg-type]
        for chosen in (Filter(), Filter(classes=("stripes",)))
    )
    assert (
        some.why == every.why
        and {r.entry.label for r in some.results} == {"stripes"}
        and some.searched == 16
    )


class MadeUpWords(ColourModel):
    """A ColourModel whose text encoder also takes vectors as words."""

    word_dim = 6

    def embed_with_word(self, text: str, words: Tensor) -> Tensor:
        return torch.nn.functional.normalize(words, dim=1)


def test_a_mapping_is_trained_once_on_the_whole_index(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the questions have filters."""
    trained: list[int] = []

    def train(model: object, images: Tensor, **options: int) -> torch.nn.Module:
        trained.append(len(images))
        return torch.nn.Identity()

    monkeypatch.setattr("cenote.search.inversion.train_mapping", train)
    question = SearchRequest(
        (0,),
        ("stripes",),
        method="pic2word",
        filter=Filter(classes=("stripes",)),
        options={"mapping": "database"},
    )
    for _ in range(2):
        answer = ask(question, store, MadeUpWords())  # type: ignore[arg-type]
        assert answer.searched == 16 and {result.entry.label for result in answer.results} == {
            "stripes"
        }
    assert trained == [32]


def test_visual_scores_are_cosines_best_first(store: Store) -> None:
    asked = {"texts": ("red",), "top": 32, "near_duplicates": "show", "visual_only": True}
    answer = ask(SearchRequest(**asked), store, ColourModel())  # type: ignore[arg-type]
    scores = [result.visual for result in answer.results]
    assert scores == sorted(scores, reverse=True) and len(scores) == 32 and answer.exact
    rows = [store.images()[result.entry.path].row for result in answer.results]
    assert np.allclose(
        scores, store.vectors(torch.tensor(rows)) @ ColourModel().embed_texts(["red"])[0], atol=1e-5
    )


def test_cut_off_then_sorted(store: Store) -> None:
    asked = {"texts": ("red",), "near_duplicates": "show", "visual_only": True}
    every = ask(SearchRequest(**asked, top=32), store, ColourModel())  # type: ignore[arg-type]
    asked |= {"cut": every.results[7].score, "top": 5}
    answer = ask(SearchRequest(**asked, sort="date"), store, ColourModel())  # type: ignore[arg-type]
    assert answer.relevant == 8 and len(answer.results) == 5
    dates = [result.entry.date for result in answer.results]
    assert dates == sorted(dates, reverse=True)
    best = {result.entry.path for result in every.results[:5]}
    assert {
        result.entry.path for result in answer.results
    } == best  # the most relevant, in another order
    names = found(store, **asked, sort="name")
    assert [name.split("/")[1] for name in names] == sorted(name.split("/")[1] for name in names)
    sizes = [
        r.entry.size for r in ask(SearchRequest(**asked, sort="size"), store, ColourModel()).results
    ]  # type: ignore[arg-type]
    assert sizes == sorted(sizes, reverse=True)
    nothing = SearchRequest(texts=("red",), cut=2.0, visual_only=True)
    assert ask(nothing, store, ColourModel()).results == []  # type: ignore[arg-type]


def test_filters_hold(photos: Path, store: Store) -> None:
    assert all(
        name.startswith("stripes")
        for name in found(store, texts=("red",), filter=Filter(classes=("stripes",)))
    )
    assert found(store, texts=("red",), filter=Filter(folders=(str(photos / "square"),)), top=2)[
        0
    ].startswith("square/red")
    late = Filter(since=3000.0)
    assert all(
        name.endswith("3")
        for name in found(store, images=(photos / "square" / "red0.png",), filter=late)
    )
    assert found(store, texts=("red",), filter=Filter(classes=("none",))) == []


def test_a_missing_file_is_marked(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    picture("red", "square", 1).save(tmp_path / "x" / "a.png")
    picture("blue", "square", 2).save(tmp_path / "x" / "b.png")
    index = LocalStore.open(tmp_path / "ix", IndexDescription("toy", "toy 1", 6))
    update_index(index, read_folders(tmp_path / "x"), ColourModel())  # type: ignore[arg-type]
    (tmp_path / "x" / "a.png").unlink()
    answer = ask(SearchRequest(texts=("red",)), index, ColourModel())  # type: ignore[arg-type]
    assert [(Path(r.entry.path).name, r.missing) for r in answer.results] == [
        ("a.png", True),
        ("b.png", False),
    ]


def test_why(store: Store, photos: Path) -> None:
    mine = photos / "square" / "red0.png"
    freedom = ask(SearchRequest((mine,), ("stripes",)), store, ColourModel(), word_memory()).why  # type: ignore[arg-type]
    assert freedom["words"][0]["word"] in WORDS and freedom["terms"] == [
        {"text": "stripes", "weight": 1.0}
    ]
    assert (
        all(os.path.exists(path) for path in freedom["proxies"])
        and str(mine) not in freedom["proxies"]
    )
    weicom = ask(
        SearchRequest((mine,), ("stripes",), options={"weight": 0.4}),
        store,
        ColourModel(),
        word_memory(),
    ).why  # type: ignore[arg-type]
    assert weicom["method"] == "weicom" and weicom["weight"] == 0.4

    twice = ask(
        SearchRequest(texts=("red", "red", "blue"), without=("red",)), store, ColourModel()
    ).why  # type: ignore[arg-type]
    assert [(t["text"], t["weight"]) for t in twice["terms"]] == [
        ("red", 1),
        ("red", 1),
        ("blue", 1),
        ("red", -1),
    ]


def test_the_question_s_own_image_is_not_counted(store: Store, photos: Path) -> None:
    asked = {"images": (photos / "square" / "red0.png",), "cut": 0.9999}
    answer = ask(SearchRequest(**asked), store, ColourModel())  # type: ignore[arg-type]
    assert answer.relevant == len(answer.results) == 0
    assert ask(SearchRequest(**asked, near_duplicates="show"), store, ColourModel()).relevant == 1  # type: ignore[arg-type]


def test_scores_from_a_mean_are_the_formula_s(store: Store, photos: Path) -> None:
    mine = photos / "square" / "red0.png"
    asked = SearchRequest(
        (mine,), ("stripes",), method="normalised-sum", top=32, near_duplicates="show"
    )
    answer = ask(asked, store, ColourModel())  # type: ignore[arg-type]
    x = store.vectors(torch.arange(32)).double()
    s_t = x @ ColourModel().embed_texts(["stripes"])[0].double()
    s_i = x @ x[store.images()[str(mine)].row]
    expected = (s_t - s_t.mean()) / s_t.std() + (s_i - s_i.mean()) / s_i.std()
    rows = [store.images()[result.entry.path].row for result in answer.results]
    assert np.allclose([result.score for result in answer.results], expected[rows], atol=1e-4)


def test_candidates_give_what_a_scan_gives(
    store: Store, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = (photos / "square" / "red0.png",)
    for method in ("weicom", "freedom", "sum", "product", "normalised-sum"):
        asked = {"images": mine, "texts": ("stripes",), "method": method, "top": 6}
        scanned = ask(SearchRequest(**asked), store, ColourModel(), word_memory())  # type: ignore[arg-type]
        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "scan", lambda self, vectors: None)
            candidates = ask(SearchRequest(**asked), store, ColourModel(), word_memory())  # type: ignore[arg-type]
        assert scanned.exact and not candidates.exact
        scores = [[result.score for result in answer.results] for answer in (scanned, candidates)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4), (
            method
        )  # images with equal scores may change places


def test_bad_questions(store: Store, tmp_path: Path, photos: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    other = ColourModel()
    other.name, other.identity = "other", "other 1"
    missing = tmp_path / "none.png"
    cases: list[tuple[dict[str, object], str]] = [
        ({}, ""),
        ({"texts": ("a",), "sort": "colour"}, "date, name, size"),
        ({"texts": ("a",), "top": 0}, r"\btop\b.*\b0\b"),
        ({"texts": ("a",), "near_duplicates": "eat"}, ""),
        ({"texts": ("a",), "cut": float("nan")}, r"\bnan\b"),
        ({"texts": ("red",), "without": ("red",)}, "red, red"),
        ({"texts": ("a",), "images": (missing,), "method": "text"}, "'text'"),
        ({"texts": ("a",), "images": (missing,), "method": "image"}, "'image'"),
        ({"texts": ("a",), "options": {"weight": 0.3}}, "'text'.*'weight'"),
        ({"texts": ("a",), "method": "freedm"}, "'freedm'.*'freedom'"),
        ({"texts": ("a",), "method": "weicom"}, "'weicom'.*image"),
        ({"images": (missing,)}, r"none\.png"),
        ({"images": (tmp_path / "broken.png",)}, r"broken\.png"),
        ({"images": (tmp_path,)}, tmp_path.name),
    ]
    for asked, value in cases:
        with pytest.raises(ValueError, match=value or None):
            ask(SearchRequest(**asked), store, ColourModel(), word_memory())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"'toy'.*'other'"):
        ask(SearchRequest(texts=("a",)), store, other)  # type: ignore[arg-type]
    other.identity = "toy 2"
    with pytest.raises(ValueError, match="'toy'"):
        ask(SearchRequest(texts=("a",)), store, other)  # type: ignore[arg-type]
    empty = LocalStore.open(tmp_path / "empty", IndexDescription("toy", "toy 1", 6))
    with pytest.raises(ValueError, match="empty"):
        ask(SearchRequest(texts=("red",)), empty, ColourModel())  # type: ignore[arg-type]


def row_of(store: Store, name: str) -> int:
    return next(i.row for i in store.images().values() if i.entry.path.endswith(f"{name}.png"))


def test_examples_with_every_kind_of_query(store: Store, tmp_path: Path) -> None:
    """By text, by image, by both and alone; files that are not in the index, too."""
    outside = tmp_path / "mine.png"
    picture("green", "stripes", 999).save(outside)
    stripes = [row_of(store, f"stripes/blue{i}") for i in (0, 1)]
    squares = [row_of(store, f"square/blue{i}") for i in (0, 1)]
    liked = found(store, texts=("blue",), like=tuple(stripes), unlike=tuple(squares), top=2)
    assert sorted(liked) == ["stripes/blue2", "stripes/blue3"], "not the examples themselves"
    liked = found(store, texts=("blue",), like=tuple(squares), unlike=tuple(stripes), top=2)
    assert sorted(liked) == ["square/blue2", "square/blue3"]
    alone = found(store, like=(outside,), top=4)
    assert {name[:-1] for name in alone} == {"stripes/green"}
    red = row_of(store, "square/red0")
    assert not any("stripes" in name for name in found(store, images=(red,), top=3))
    moved = found(store, images=(red,), like=(outside, *stripes), top=3)
    assert any("stripes" in name for name in moved)
    both = SearchRequest((red,), ("stripes",), like=(outside,), unlike=(squares[0],))
    answer = ask(both, store, ColourModel(), word_memory())  # type: ignore[arg-type]
    assert answer.why["examples"] == {"like": 1, "unlike": 1}
    assert set(answer.why["shares"]) == {"image", "text", "examples"}
    assert sum(answer.why["shares"].values()) == pytest.approx(1)
    assert all(-1 <= result.score <= 1 for result in answer.results)


def test_disliked_images_are_not_a_query(store: Store) -> None:
    with pytest.raises(ValueError, match="an empty query"):
        SearchRequest(unlike=(row_of(store, "square/red0"),))
