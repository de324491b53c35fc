"""Texts of images in an index: which words are stored, found, changed, removed, renumbered and upgraded."""

import multiprocessing
import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from PIL import Image

from cenote.data import read_folders
from cenote.search.index import read_keywords, update_index
from cenote.search.local_store import LocalStore
from cenote.search.store import Filter, ImageEntry, IndexDescription, Store, TextMatch
from cenote.search.text_index import (
    MAX_QUERY_WORDS,
    entry_texts,
    name_words,
    query_words,
    split_words,
    stems_of,
)
from tests.toy_models import ColourModel, picture

from .test_local_store import entry, filled, ids, unit_rows
from .test_local_store_processes import read_as_a_guest, shared  # noqa: F401

MADE = IndexDescription("toy", "toy 1", 6)


def rows_with(store: Store, *words: str) -> list[int]:
    hits = store.find_texts(words)
    assert hits is not None
    return sorted(set(hits.rows.tolist()))


def texts_with(store: Store, *words: str) -> set[TextMatch]:
    hits = store.find_texts(words)
    assert hits is not None
    return {hits.texts[place] for place in hits.places.tolist()}


def test_words() -> None:
    assert split_words("GermanShepherd_dog-house dog") == ["German", "Shepherd", "dog", "house"]
    assert split_words("the dog on the grass") == ["dog", "grass"] and split_words("the") == ["the"]
    assert split_words("我的海豚photo") == ["我", "的", "海", "豚", "photo"]
    assert split_words("De\u0301lice") == ["D\xe9lice"] and split_words("\udcffdog 🐬") == ["dog"]
    assert query_words("a photo of a dog") == ["dog"] and query_words("photo") == ["photo"]
    assert len(query_words(" ".join(map(str, range(5000))))) == MAX_QUERY_WORDS
    assert stems_of(["D\xe9lice", "", "dolphin Dolphins"]) == [["delic"], [], ["dolphin"]]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("IMG_1234", []),
        ("DSC00012", []),
        ("P1010234", []),
        ("PXL_20230101_123456", []),
        ("a3f8bc91de77", []),
        ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", []),
        ("dolphin_001", ["dolphin"]),
        ("hot-dogStand2019", ["hot", "dog", "Stand"]),
    ],
)
def test_words_of_a_file_name(name: str, words: list[str]) -> None:
    assert name_words(name) == words


def test_texts_of_an_image() -> None:
    image = ImageEntry(
        "/home/me/photos/2. Rome 2019/001.Black_footed_Albatross/IMG_12 sea.jpg",
        "",
        source="/home/me/photos",
        label="001.Black_footed_Albatross",
        domain="sketch",
        caption="A bird in the sea",
        attributes={"colour": "black"},
        keywords="Mare; nostrum\nsketch",
    )
    assert entry_texts(image) == [
        ("class", "Black footed Albatross"),  # the folder of the same name is left out
        ("folder", "Rome 2019"),
        ("keyword", "Mare nostrum"),
        ("keyword", "sketch"),
        ("caption", "bird sea"),
        ("attribute", "black"),
        ("file name", "sea"),
    ]
    for source, folders in (
        ("/p/photos/dog", ["dog"]),
        ("/p/photos/dog/1.jpg", ["dog"]),
        ("/p/list.csv", ["p", "dog"]),
        ("/elsewhere/list.csv", ["dog"]),
        ("some digest", ["dog"]),
    ):
        texts = entry_texts(ImageEntry("/p/photos/dog/1.jpg", "", source=source))
        assert texts == [("folder", folder) for folder in folders]
    assert entry_texts(ImageEntry("world/tiny:images/cat/1.png", "")) == [
        ("folder", "images"),
        ("folder", "cat"),
    ]


def test_found_by_word_in_a_view_and_after_changes(tmp_path: Path) -> None:
    index, _ = filled(tmp_path)
    assert rows_with(index, "C1") == list(range(1, 60, 3)) and rows_with(index, "c") == []
    assert rows_with(index, "sketches") == list(range(0, 60, 4))  # stemmed
    assert texts_with(index, "c2", "photos") == {("class", "c2"), ("domain", "photo")}
    view = index.select(Filter(domains=("sketch",)))
    assert rows_with(view, "c1") == list(range(4, 60, 12))
    with index.writer() as writer:
        writer.update([entry(1)._replace(label="dolphin"), entry(999)])
        writer.remove([entry(4).path])
        writer.put([entry(7)], unit_rows(1), ids(1, 7))
    assert rows_with(index, "dolphins") == [1] and rows_with(index, "c1") == [*range(10, 60, 3), 60]
    with index.writer() as writer:
        writer.update([entry(1)])
        assert writer.compact(0)
    assert rows_with(index, "dolphin") == []
    labels = {row: image.label for row, image in index.images().values()}
    assert rows_with(index, "c1") == sorted(row for row in labels if labels[row] == "c1")
    stored = sqlite3.connect(tmp_path / "images.sqlite").execute("select text from texts")
    assert ("dolphin",) not in stored.fetchall()  # compacted as well


@pytest.mark.parametrize(
    "word", ["", "*", '"', "AND", "NEAR(", "text:", "-", "a" * 10_000, "\u0301", "🐬"]
)
def test_no_word_is_an_operator(tmp_path: Path, word: str) -> None:
    index, _ = filled(tmp_path, 4)
    assert rows_with(index, word) == [] and rows_with(index, word, "c1") == [1]


def make_earlier_version(folder: Path) -> None:
    """Delete what an earlier version did not store."""
    with sqlite3.connect(folder / "images.sqlite", isolation_level=None) as connection:
        for name in ("trigger image_removed", "trigger image_renumbered"):
            connection.execute(f"drop {name}")
        for name in ("image_texts", "text_index", "texts"):
            connection.execute(f"drop table {name}")
        connection.execute("alter table images drop column keywords")
    connection.close()


def test_an_index_of_an_earlier_version_is_upgraded(tmp_path: Path) -> None:
    index, x = filled(tmp_path)
    index.db.close()
    make_earlier_version(tmp_path)
    index = LocalStore.open(tmp_path)
    assert rows_with(index, "c1") == list(range(1, 60, 3))
    assert index.entries(index.rows) == [entry(i) for i in range(60)]
    assert index.nearest(x[:1], 1)[1].tolist() == [[0]]


def test_an_index_of_an_earlier_version_that_may_only_be_read(shared: Path) -> None:  # noqa: F811
    index, _ = filled(shared)
    index.db.close()
    make_earlier_version(shared)
    texts = read_as_a_guest(shared, lambda index: (index.find_texts(["c1"]), len(index.images())))
    assert texts == "(None, 60)"


def test_a_killed_upgrade_is_repeated(tmp_path: Path) -> None:
    """SIGKILL at some moment of it."""
    index, _ = filled(tmp_path / "ix", 1500)
    index.db.close()
    make_earlier_version(tmp_path / "ix")
    for turn in range(6):
        folder = tmp_path / str(turn)
        shutil.copytree(tmp_path / "ix", folder)
        process = multiprocessing.get_context("fork").Process(
            target=LocalStore.open, args=(folder,)
        )
        process.start()
        time.sleep(0.023 * turn)
        process.kill()
        process.join(60)
        index = LocalStore.open(folder)
        assert rows_with(index, "c0", "c1", "c2") == list(range(1500))
        assert len(index.images()) == 1500
        index.db.close()


def test_a_writer_that_is_at_work_upgrades(tmp_path: Path) -> None:
    index, _ = filled(tmp_path)
    index.db.close()
    make_earlier_version(tmp_path)
    with LocalStore.open(tmp_path).writer():
        assert rows_with(LocalStore.open(tmp_path), "c1") == list(range(1, 60, 3))


def test_folders_of_a_moved_index(tmp_path: Path) -> None:
    photos = tmp_path / "old" / "beach"
    photos.mkdir(parents=True)
    picture("red", "square", 1).save(photos / "IMG_1.png")
    index = LocalStore.open(tmp_path / "old" / "ix", MADE)
    update_index(index, read_folders(photos.parent), ColourModel(), source=str(photos.parent))  # type: ignore[arg-type]
    assert texts_with(index, "beach", "old") == {("class", "beach"), ("folder", "old")}
    index.db.close()
    os.rename(tmp_path / "old", tmp_path / "new")
    index = LocalStore.open(tmp_path / "new" / "ix")
    with index.writer():
        pass
    assert texts_with(index, "beach", "old", "new") == {("class", "beach"), ("folder", "new")}


def jpeg_with_keywords(path: Path) -> None:
    image = picture("red", "square", 1)
    exif = image.getexif()
    exif[270], exif[40094] = "A bottlenose dolphin", "Meer;K\xfcste".encode("utf-16-le")
    xmp = b"<rdf:RDF><dc:subject><rdf:Bag><rdf:li>spray &amp; foam</rdf:li></rdf:Bag></dc:subject></rdf:RDF>"
    image.save(path, exif=exif, xmp=xmp)
    values = [(25, b"sea"), (25, "\xfcber".encode()), (120, b"jumping")]
    iptc = b"".join(bytes([28, 2, tag, 0, len(value)]) + value for tag, value in values)
    iptc += b"\0" * (len(iptc) % 2)
    block = b"Photoshop 3.0\0" + b"8BIM\4\4\0\0" + len(iptc).to_bytes(4, "big") + iptc
    jpeg = path.read_bytes()
    path.write_bytes(
        jpeg[:2] + b"\xff\xed" + (len(block) + 2).to_bytes(2, "big") + block + jpeg[2:]
    )


def test_keywords_of_a_file(tmp_path: Path) -> None:
    jpeg_with_keywords(tmp_path / "a.jpg")
    assert read_keywords(str(tmp_path / "a.jpg")).splitlines() == [
        "A bottlenose dolphin",
        "Meer",
        "K\xfcste",
        "sea",
        "\xfcber",
        "jumping",
        "spray & foam",
    ]
    Image.new("RGB", (8, 8)).save(tmp_path / "b.png")
    (tmp_path / "c.jpg").write_bytes(b"not an image")
    assert read_keywords(str(tmp_path / "b.png")) == read_keywords(str(tmp_path / "c.jpg")) == ""


def test_the_next_pass_reads_the_keywords_of_an_earlier_version(tmp_path: Path) -> None:
    photos = tmp_path / "photos" / "x"
    photos.mkdir(parents=True)
    jpeg_with_keywords(photos / "a.jpg")
    index = LocalStore.open(tmp_path / "ix", MADE)
    data = read_folders(photos.parent)
    update_index(index, data, ColourModel())  # type: ignore[arg-type]
    assert texts_with(index, "kuste") == {("keyword", "K\xfcste")}
    index.db.close()
    make_earlier_version(tmp_path / "ix")
    index = LocalStore.open(tmp_path / "ix")
    assert rows_with(index, "kuste") == [] and rows_with(index, "x") == [0]
    report = update_index(index, data, ColourModel())  # type: ignore[arg-type]
    assert report.embedded == report.noted == 0 and report.same == 1
    assert rows_with(index, "kuste") == [0]
    assert update_index(index, data, ColourModel()).same == 1  # type: ignore[arg-type]


def test_a_file_name_that_is_not_text(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/photos/d\xe9lice"
    os.makedirs(folder)
    try:
        with open(folder + b"/\xff dolphin.png", "wb") as file:
            picture("red", "square", 1).save(file, "png")
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    index = LocalStore.open(tmp_path / "ix", MADE)
    update_index(index, read_folders(tmp_path / "photos"), ColourModel())  # type: ignore[arg-type]
    assert texts_with(index, "dolphins") == {("file name", "dolphin")}
