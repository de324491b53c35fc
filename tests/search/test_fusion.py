"""Texts that are stored with images count beside what the images look like."""

import logging
from pathlib import Path

import pytest
import torch

from cenote.search.fusion import CERTAINTY, MAX_VISUAL, find_evidence, relative_shares, text_shares
from cenote.search.local_store import LocalStore
from cenote.search.query import SearchAnswer, SearchRequest, ask
from cenote.search.results import RankedImage
from cenote.search.store import (
    Filter,
    ImageEntry,
    IndexDescription,
    Store,
    TextHits,
    TextMatch,
)
from tests.toy_models import WordSumModel

from .test_local_store import unit_rows

DIM = 24
FOLDERS = ("dolphin", "hot dog stand 2019", "dogwood", "dog", "unsorted")


def fill(folder: Path, places: list[str], **fields: str) -> LocalStore:
    """Index images at these paths with random vectors."""
    index = LocalStore.open(folder, IndexDescription("toy", "toy", DIM))
    images = [
        ImageEntry(f"/p/photos/{name}", f"{i:032x}", look=i**5, source="/p/photos", **fields)
        for i, name in enumerate(places)
    ]
    with index.writer() as writer:
        writer.put(images, unit_rows(len(places), seed=4, dim=DIM))
    return index


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    names = [f"{FOLDERS[i % 5]}/IMG_{i:04d}.jpg" for i in range(100)]
    return fill(tmp_path_factory.mktemp("index"), [*names, "unsorted/my_big_dog_2.jpg"])


def search(store: Store, *texts: str, **options: object) -> SearchAnswer:
    request = SearchRequest(texts=texts, near_duplicates="show", **options)  # type: ignore[arg-type]
    return ask(request, store, WordSumModel(DIM))  # type: ignore[arg-type]


def folders(answer: SearchAnswer) -> list[str]:
    return [Path(result.entry.path).parent.name for result in answer.results]


def test_the_formula() -> None:
    """The strongest text counts, times the share of the query's words in any text."""
    texts = [
        TextMatch("folder", "dog"),
        TextMatch("file name", "big black dog"),
        TextMatch("caption", "black cat sleeps soundly"),
    ]
    words = torch.tensor([[True, False], [True, True], [False, True]])  # of "dog black"
    hits = TextHits(texts, words, torch.tensor([7, 7, 3, 9]), torch.tensor([0, 1, 2, 0]))
    rows, shares = text_shares(hits)
    (folder, _), (name, power), (caption, sentence) = (
        CERTAINTY[field] for field in ("folder", "file name", "caption")
    )
    assert rows.tolist() == [3, 7, 9]
    expected = [caption * (1 / 4) ** sentence / 2, max(folder, name * (2 / 3) ** power), folder / 2]
    assert shares.tolist() == pytest.approx(expected, abs=1e-6)


def test_relative_shares_keep_the_order() -> None:
    scores = torch.cat([unit_rows(1, dim=5000)[0], torch.tensor([0.9, 0.9000001])])
    shares = relative_shares(scores)
    assert torch.equal(shares.argsort(stable=True), scores.argsort(stable=True))
    assert float(shares.min()) > 0
    assert min(certainty for certainty, _ in CERTAINTY.values()) > MAX_VISUAL
    assert relative_shares(torch.tensor([0.3])).isfinite().all()
    assert relative_shares(torch.tensor([0.3, 0.3])).isfinite().all()


def test_a_folder_of_that_name_comes_first(store: LocalStore) -> None:
    for text in ("dolphin", "Dolphins", "a photo of a dolphin"):
        answer = search(store, text, top=20)
        assert folders(answer) == ["dolphin"] * 20 and answer.why["matches"] == {"folder": 20}
        assert {result.matches for result in answer.results} == {(("folder", "dolphin"),)}
    answer = search(store, "dog", top=101)
    assert folders(answer)[:20] == ["dog"] * 20
    (named,) = [
        result for result in answer.results if result.matches == (("file name", "big dog"),)
    ]
    assert "dogwood" not in {text for result in answer.results for _, text in result.matches}
    assert named.score < answer.results[19].score
    for doubtful in (False, True):
        scores = [result.score for result in answer.results if result.doubtful == doubtful]
        assert scores == sorted(scores, reverse=True) and 0 < scores[-1] < scores[0] < 1
    assert [r.doubtful for r in answer.results] == sorted(r.doubtful for r in answer.results)
    assert not any(result.doubtful and result.matches for result in answer.results)


def test_images_of_equal_texts_are_ranked_by_their_looks(store: LocalStore) -> None:
    answer = search(store, "dolphin", top=20)
    visual = [result.visual for result in answer.results]
    vector = WordSumModel(DIM).embed_texts(["dolphin"])[0]
    cosines = store.vectors(torch.tensor([result.row for result in answer.results])) @ vector
    assert visual == sorted(visual, reverse=True)
    assert visual == pytest.approx(cosines.tolist(), abs=1e-5)


@pytest.mark.parametrize("text", ["cat", "*", '"', "🐬", "NEAR(", "-", "a" * 10_000, "الدلفين"])
def test_without_a_match_results_are_visual(store: LocalStore, text: str) -> None:
    fused, visual = search(store, text), search(store, text, visual_only=True)
    assert fused == visual and "matches" not in fused.why
    looks = [result.visual for result in fused.results if not result.doubtful]
    assert looks == sorted(looks, reverse=True)
    assert not any(result.matches for result in fused.results)


def test_operators_are_words(store: LocalStore) -> None:
    for text in ('"dolphin', "dolphin*", "text:dolphin", "NOT dolphin", "dolphin AND"):
        assert folders(search(store, text, top=5)) == ["dolphin"] * 5, text


def test_visual_only_and_an_image_ignore_texts(store: LocalStore) -> None:
    answer = search(store, "dolphin", visual_only=True)
    assert not any(result.matches for result in answer.results)
    composed = search(store, "dolphin", images=(5,), method="sum")
    assert not any(result.matches for result in composed.results) and "matches" not in composed.why


def test_weights_and_unwanted_texts(store: LocalStore) -> None:
    assert folders(search(store, "dolphin^3", "dog", top=20)) == ["dolphin"] * 20
    assert folders(search(store, "dolphin", "dog^3", top=20)) == ["dog"] * 20
    every = set(FOLDERS)
    for texts in (("stand",), ()):
        answer = search(store, *texts, without=("dolphin",), top=101)
        assert set(folders(answer)) == every - {"dolphin"} and answer.relevant == 81
    answer = search(store, without=("dog",), top=101)  # a word among others is not certain
    assert set(folders(answer)) == every - {"dog"} and not any(r.matches for r in answer.results)
    (named,) = [i for i, r in enumerate(answer.results) if "my_big_dog" in r.entry.path]
    visual = sorted((r.visual for r in answer.results), reverse=True)
    assert named > visual.index(answer.results[named].visual)  # further down than by its looks


def test_the_cut_is_of_the_score(store: LocalStore) -> None:
    answer = search(store, "dolphin", cut=0.95, top=101)
    assert folders(answer) == ["dolphin"] * 20 and answer.relevant == 20


def test_filters_hold_for_texts(store: LocalStore) -> None:
    answer = search(store, "dolphin", filter=Filter(folders=("/p/photos/dog",)), top=101)
    assert folders(answer) == ["dog"] * 20 and not any(r.matches for r in answer.results)


def test_matching_images_are_among_the_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if they look least like the text."""
    places = [f"unsorted/IMG_{i}.jpg" for i in range(2000)]
    index = fill(tmp_path, places)
    worst = (index.vectors(index.rows) @ WordSumModel(DIM).embed_texts(["dolphin"])[0]).argmin()
    with index.writer() as writer:
        (image,) = index.entries(worst[None])
        writer.update([image._replace(caption="a dolphin")])
    exact = search(index, "dolphin", top=5)
    monkeypatch.setattr(LocalStore, "scan", lambda self, vectors: None)
    answer = search(index, "dolphin", top=5)
    assert exact.exact and not answer.exact
    assert [a.results[0].row for a in (exact, answer)] == [int(worst)] * 2
    assert [r.row for r in answer.results] == [r.row for r in exact.results]


def test_words_of_several_texts_count_together(tmp_path: Path) -> None:
    index = fill(tmp_path, ["lake/red.jpg", "lake/blue.jpg", "sea/red.jpg", "x/y.jpg"])
    evidence = find_evidence(index, [("red lake", 1.0)])
    assert evidence is not None and evidence.rows.tolist() == [0, 1, 2]
    assert float(evidence.wanted[0]) > 1.9 * float(evidence.wanted[1:].max())
    best: RankedImage = search(index, "red lake").results[0]
    assert best.row == 0 and set(best.matches) == {("folder", "lake"), ("file name", "red")}


def test_an_index_without_texts_is_searched_visually(
    store: LocalStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = search(store, "dolphin", visual_only=True)
    monkeypatch.setattr(store.db.texts, "exists", False)
    with caplog.at_level(logging.WARNING):
        assert search(store, "dolphin") == search(store, "dolphin") == expected
    assert len(caplog.records) == 1 and store.where in caplog.text


def test_a_word_of_every_image(tmp_path: Path) -> None:
    """It does not change the order."""
    index = fill(tmp_path, [f"dog/IMG_{i}.jpg" for i in range(300)])
    fused, visual = (search(index, "dog", top=50, visual_only=only) for only in (False, True))
    assert [r.row for r in fused.results] == [r.row for r in visual.results]
    assert all(result.matches for result in fused.results)


def test_a_text_that_all_images_have_is_not_evidence(tmp_path: Path) -> None:
    """Except for a text that the model does not know: there is nothing else to find them by."""
    names = [f"{'cat' if i % 2 else 'dog'}/IMG_{i:04d}.jpg" for i in range(20)]
    index = fill(tmp_path, names, caption="holiday cat")
    captions = TextMatch("caption", "holiday cat")
    terms, every, cats = [("cat", 1.0)], list(range(20)), list(range(1, 20, 2))
    for view in (index, index.select(Filter(folders=("/p/photos/cat",)))):
        evidence = find_evidence(view, terms, index)
        assert evidence is not None and evidence.rows.tolist() == cats
        assert evidence.fields == {"folder": 10} and captions not in evidence.matches(cats)[0]
    evidence = find_evidence(index, terms, index, unknown={"cat"})
    assert evidence is not None and evidence.rows.tolist() == every
    assert find_evidence(index, [("holiday", 1.0), ("holiday", -1.0)], index) is None
