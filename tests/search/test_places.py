"""An index that is moved or copied with its images and its model finds them; one that names no home opens, too."""

import os
import shutil
import sqlite3
from pathlib import Path

import pytest
import torch

from cenote.data import read_folders
from cenote.search.filters import Filter
from cenote.search.index import update_index
from cenote.search.local_store import LocalStore
from cenote.search.opening import check_there, words_of
from cenote.search.places import Places, relocate
from cenote.search.query import SearchRequest, ask
from cenote.search.store import ImageEntry, IndexDescription
from tests.toy_models import COLOURS, SHAPES, ColourModel, CountingColourModel, picture

TOY = IndexDescription("toy", "toy 1", 6)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """photos/, clip/ and words.txt, and the index of them beside."""
    root = tmp_path / "old"
    for colour in COLOURS:
        for i, shape in enumerate(SHAPES):
            (root / "photos" / shape).mkdir(parents=True, exist_ok=True)
            picture(colour, shape, i).save(root / "photos" / shape / f"{colour}.png")
    (root / "clip").mkdir()
    (root / "words.txt").write_text("red\n")
    made = IndexDescription(
        str(root / "clip"),
        "toy 1",
        6,
        words={"name": str(root / "words.txt"), "digest": "d", "n": 0},
    )
    update_index(
        LocalStore.open(root / "ix", made),
        read_folders(root / "photos"),
        ColourModel(),
        source=str(root / "photos"),
    )  # type: ignore[arg-type]
    return root


def moved(root: Path) -> Path:
    new = root.parent / "a" / "new"
    new.parent.mkdir()
    return Path(shutil.move(root, new))


def stored(index: Path) -> list[str]:
    with sqlite3.connect(index / "images.sqlite") as base:
        return sorted(os.fsdecode(path) for (path,) in base.execute("select path from images"))


def forget_home(index: Path) -> None:
    """As an older Cenote wrote it."""
    with sqlite3.connect(index / "images.sqlite") as base:
        base.execute("delete from state where name in ('home', 'model_home')")


def every(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*.png"))


def test_everything_moves_along(root: Path) -> None:
    new = moved(root)
    index = LocalStore.open(new / "ix")
    assert index.description.model == str(new / "clip") and index.description.words["name"] == str(
        new / "words.txt"
    )
    check_there(index)
    assert sorted(index.images()) == every(new / "photos")
    answer = ask(SearchRequest(texts=("red",), near_duplicates="show"), index, ColourModel())  # type: ignore[arg-type]
    assert len(answer.results) == 8 and not any(result.missing for result in answer.results)
    assert {entry.source for entry in index.entries(torch.arange(8))} == {str(new / "photos")}
    for folder, count in (
        (new / "photos" / "square", 4),
        (root / "photos" / "square", 4),
        (new / "clip", 0),
    ):
        assert len(index.select(Filter(folders=(str(folder),)))) == count
    assert stored(new / "ix")[0].startswith(str(root))  # a reader changes nothing


def test_a_writer_stores_the_new_paths(root: Path) -> None:
    new, model = moved(root), CountingColourModel()
    source = str(new / "photos")
    report = update_index(
        LocalStore.open(new / "ix"), read_folders(new / "photos"), model, source=source
    )  # type: ignore[arg-type]
    assert (report.same, report.removed, report.moved, model.embedded) == (8, 0, 0, 0)
    assert stored(new / "ix") == every(new / "photos")
    again = Path(shutil.move(new, root.parent / "third"))
    index = LocalStore.open(again / "ix")
    assert index.description.model == str(again / "clip") and sorted(index.images()) == every(
        again / "photos"
    )


def test_a_file_that_changed_on_the_way_is_embedded_again(root: Path) -> None:
    new, model = moved(root), CountingColourModel()
    picture("red", "stripes", 77).resize((90, 90)).save(new / "photos" / "square" / "red.png")
    report = update_index(
        LocalStore.open(new / "ix"), read_folders(new / "photos"), model, source=str(new / "photos")
    )  # type: ignore[arg-type]
    assert (report.embedded, report.same, model.embedded) == (1, 7, 1) and len(
        LocalStore.open(new / "ix")
    ) == 8


def test_others_in_the_old_place_are_not_taken_for_them(root: Path) -> None:
    new = moved(root)
    shutil.copytree(new, root)
    for path in every(root / "photos"):
        picture("blue", "stripes", 5).resize((200, 200)).save(path)
    assert sorted(LocalStore.open(new / "ix").images()) == every(new / "photos")


def test_a_copy_without_its_images_has_them_where_they_were(root: Path) -> None:
    copy = root.parent / "backup" / "deep" / "ix"
    shutil.copytree(root / "ix", copy)
    index = LocalStore.open(copy)
    assert sorted(index.images()) == every(root / "photos") and index.description.model == str(
        root / "clip"
    )
    with index.writer():
        pass
    assert stored(copy) == every(root / "photos")
    (copy.parent / "photos" / "square").mkdir(parents=True)
    picture("blue", "stripes", 5).resize((200, 200)).save(
        copy.parent / "photos" / "square" / "red.png"
    )
    assert sorted(LocalStore.open(copy).images()) == every(
        root / "photos"
    )  # of another size: another picture


def test_an_image_that_is_there_twice_once_settled_is_one(root: Path) -> None:
    new = root.parent / "a" / "copy"
    shutil.copytree(root, new)
    forget_home(new / "ix")  # which an older Cenote then filled: every image under both names
    update_index(
        LocalStore.open(new / "ix"),
        read_folders(new / "photos"),
        ColourModel(),
        source=str(new / "photos"),
    )  # type: ignore[arg-type]
    assert len(LocalStore.open(new / "ix")) == 16
    with sqlite3.connect(new / "ix" / "images.sqlite") as base:
        base.execute("update state set value = ? where name = 'home'", (os.fsencode(root / "ix"),))
    shutil.rmtree(root)
    with LocalStore.open(new / "ix").writer():
        pass
    assert stored(new / "ix") == every(new / "photos") and len(LocalStore.open(new / "ix")) == 8


def bitmaps(folder: Path, shape: str) -> list[str]:
    """All of one size, whatever they show."""
    folder.mkdir(parents=True)
    for i, colour in enumerate(COLOURS):
        picture(colour, shape, i).save(folder / f"{i}.bmp")
    return sorted(map(str, folder.iterdir()))


def test_a_copy_beside_others_of_the_same_size_keeps_its_own(tmp_path: Path) -> None:
    own, others = (
        bitmaps(tmp_path / "a" / "photos", "square"),
        bitmaps(tmp_path / "b" / "photos", "stripes"),
    )
    assert len({os.path.getsize(path) for path in own + others}) == 1
    source = str(tmp_path / "a" / "photos")
    update_index(
        LocalStore.open(tmp_path / "a" / "ix", TOY),
        read_folders(tmp_path / "a"),
        ColourModel(),
        source=source,
    )  # type: ignore[arg-type]
    shutil.copytree(tmp_path / "a" / "ix", tmp_path / "b" / "ix")
    index = LocalStore.open(tmp_path / "b" / "ix")
    assert sorted(index.images()) == own
    report = update_index(
        index, read_folders(tmp_path / "b"), ColourModel(), source=str(tmp_path / "b" / "photos")
    )  # type: ignore[arg-type]
    assert (report.embedded, report.removed) == (4, 0) and sorted(index.images()) == own + others


def put(index: Path, *images: tuple[Path, str]) -> None:
    """Rows with these digests, and files of one byte where there are none."""
    entries = []
    for path, digest in images:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        entries.append(ImageEntry(str(path), digest, 1))
    with LocalStore.open(index, TOY).writer() as writer:
        writer.put(entries, torch.eye(6)[: len(entries)])


def test_a_row_gives_way_only_to_the_same_image(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    other, same = (new / "photos" / "1.bmp", "other"), (new / "photos" / "2.bmp", "same")
    put(
        old / "ix",
        (old / "photos" / "1.bmp", "own"),
        (old / "photos" / "2.bmp", "same"),
        other,
        same,
    )
    shutil.rmtree(old / "photos")
    shutil.move(old / "ix", new / "ix")
    with LocalStore.open(new / "ix").writer():
        pass
    left = LocalStore.open(new / "ix").images().items()
    assert sorted((path, known.entry.digest) for path, known in left) == sorted(
        [(str(old / "photos" / "1.bmp"), "own"), (str(other[0]), "other"), (str(same[0]), "same")]
    )


def test_of_two_rows_with_one_new_path_the_first_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "old" / "ix", (tmp_path / "1", "one"), (tmp_path / "2", "two"))
    shutil.move(tmp_path / "old", tmp_path / "new")
    monkeypatch.setattr(Places, "settled", lambda *_: (str(tmp_path / "3"), ""))
    with LocalStore.open(tmp_path / "new" / "ix").writer():
        pass
    assert stored(tmp_path / "new" / "ix") == [str(tmp_path / "2"), str(tmp_path / "3")]


def test_nothing_is_above_the_root() -> None:
    """A path that would need a folder above the root stays as it is."""
    for path, now in {
        "/home/me/work/photos/a": "/photos/a", "/home/me/work/ix/a": "/ix/a",
        "/home/me/photos/a": "/home/me/photos/a", "/home/photos/a": "/home/photos/a",
    }.items():  # fmt: skip
        assert relocate(path, "/home/me/work/ix", "/ix") == now


@pytest.mark.parametrize("name", ["photos", "imagenet-r-conversion:photos"])
def test_images_deleted_on_the_way_leave(root: Path, name: str) -> None:
    def source(folder: Path) -> str:
        return name.replace("photos", str(folder / "photos"))

    shutil.rmtree(root / "ix")
    index = LocalStore.open(root / "ix", TOY)
    update_index(index, read_folders(root / "photos"), ColourModel(), source=source(root))  # type: ignore[arg-type]
    new = moved(root)
    (new / "photos" / "square" / "red.png").unlink()
    index = LocalStore.open(new / "ix")
    assert {known.entry.source for known in index.images().values()} == {source(new)}
    report = update_index(index, read_folders(new / "photos"), ColourModel(), source=source(new))  # type: ignore[arg-type]
    assert (report.same, report.removed) == (7, 1) and stored(new / "ix") == every(new / "photos")


def test_a_copys_folder_is_not_its_originals(root: Path) -> None:
    copy = root.parent / "a" / "copy"
    shutil.copytree(root, copy)
    index = LocalStore.open(copy / "ix")
    assert (
        len(index.select(Filter(folders=(str(root / "photos"),)))) == 8
    )  # that is where its images are
    assert len(index.select(Filter(folders=(str(copy / "photos"),)))) == 0
    shutil.rmtree(root)
    assert len(index.select(Filter(folders=(str(copy / "photos"),)))) == 8


def test_through_a_link_it_is_at_home(root: Path) -> None:
    (root.parent / "link").symlink_to(root)
    index = LocalStore.open(root.parent / "link" / "ix")
    assert sorted(index.images()) == every(root / "photos")
    with index.writer():
        pass
    assert stored(root / "ix") == every(root / "photos")


@pytest.mark.parametrize("linked", ["ix", "folder"])
def test_a_link_to_one_that_was_moved(root: Path, linked: str) -> None:
    new, link = moved(root), root.parent / "desk" / "link"
    link.parent.mkdir()
    link.symlink_to(new / "ix" if linked == "ix" else new)
    index = LocalStore.open(link if linked == "ix" else link / "ix")
    seen = new if linked == "ix" else link
    for _ in range(2):
        assert [os.path.realpath(path) for path in sorted(index.images())] == every(new / "photos")
        assert index.description.model == str(seen / "clip")
        with index.writer():
            pass
    assert index.table.state("home") == index.table.state("model_home") == os.fsencode(seen / "ix")
    link.unlink()
    third = Path(shutil.move(new, root.parent / "third"))
    index = LocalStore.open(third / "ix")
    assert sorted(index.images()) == every(third / "photos") and index.description.model == str(
        third / "clip"
    )


def test_an_index_without_a_home(root: Path) -> None:
    forget_home(root / "ix")
    assert sorted(LocalStore.open(root / "ix").images()) == every(root / "photos")
    new = moved(root)
    index = LocalStore.open(new / "ix")
    assert sorted(index.images()) == [
        str(root / path.relative_to(new)) for path in map(Path, every(new / "photos"))
    ]
    with pytest.raises(ValueError, match=rf"{root}/clip\b.*-o {new}/ix --model"):
        check_there(index)
    with pytest.raises(ValueError, match=rf"{new}/ix\b.*{root}/words\.txt"):
        words_of(index, ColourModel())  # type: ignore[arg-type]
    with index.writer():
        pass
    assert LocalStore.open(new / "ix").table.state("home") == os.fsencode(new / "ix")
