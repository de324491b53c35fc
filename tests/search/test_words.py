"""A word list holds each word once, in order, and its vectors are made once for each model."""

from pathlib import Path

import pytest
import torch

from cenote.search import load_words, remember_words
from tests.shared_data import shared_data
from tests.toy_models import WordSumModel, image_vectors

from .rankings import assert_ranked


def test_a_text_file_has_a_word_a_line(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("dog\n\n  polar   bear \ncat, of the house\nDog\n", encoding="utf-8-sig")
    assert load_words(path) == ["dog", "polar bear", "cat, of the house"]


def test_a_csv_has_them_in_its_last_column(tmp_path: Path) -> None:
    path = tmp_path / "words.csv"
    path.write_text('LabelName,DisplayName\n/m/01,"Cat, wild"\n/m/02,Dog\n')
    assert load_words(path) == ["Cat, wild", "Dog"]
    path.write_text('"Cat, wild"\nDog\n')
    assert load_words(path) == ["Cat, wild", "Dog"]


def test_the_papers_list(tmp_path: Path) -> None:
    path = shared_data("vocabulary/open_images_v7.csv")
    words = load_words(path)
    assert 20_000 < len(words) < 21_000 and "Dog" in words and any("," in word for word in words)


def test_without_a_file_imagenet_s_names() -> None:
    words = load_words()
    assert 15_000 < len(words) < 21_844 and len({word.casefold() for word in words}) == len(words)
    assert "giraffe" in words and "person" in words
    assert load_words(None, WordSumModel()) == words


def test_a_model_that_says_what_it_can_name_is_asked_for_that(tmp_path: Path) -> None:
    model = WordSumModel()
    model.things = ["cat", "crested bird"]  # type: ignore[attr-defined]
    assert load_words(None, model) == ["cat", "crested bird"]
    (tmp_path / "words.txt").write_text("dog\n")
    assert load_words(tmp_path / "words.txt", model) == ["dog"]


@pytest.mark.parametrize("content", [None, b"", b"\n \n", b"\xff\xfe\x00\xd8"])
def test_a_bad_list(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "words.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=str(path)):
        load_words(path)


def test_vectors_are_kept_for_each_model_and_list(tmp_path: Path) -> None:
    model = WordSumModel()
    first = remember_words(model, ["dog", "cat"])
    assert len(model.asked) == 2
    again = remember_words(model, ["dog", "cat"])
    assert len(model.asked) == 2
    torch.testing.assert_close(first.vectors, again.vectors, rtol=0, atol=0)
    remember_words(model, ["cat", "dog"])
    remember_words(WordSumModel(identity="other"), ["dog", "cat"])
    files = list((tmp_path / "cache" / "words").iterdir())
    assert len(model.asked) == 4 and len(files) == 3
    for file in files:
        file.write_bytes(file.read_bytes()[:100])  # cut off: made again
    torch.testing.assert_close(remember_words(model, ["dog", "cat"]).vectors, first.vectors)
    assert len(model.asked) == 6
    with pytest.raises(ValueError):
        remember_words(model, [])


def test_nearest_words_are_the_largest_cosines() -> None:
    model = WordSumModel()
    memory, x = remember_words(model, [f"w{i}" for i in range(30)]), image_vectors(5)
    for words, similarities in zip(
        memory.nearest(x, 4), x.double() @ memory.vectors.double().T, strict=True
    ):
        assert len(words) == 4
        assert_ranked(words, similarities)
    assert memory.nearest(x, 99).shape == (5, 30)
