"""An index that is moved or copied with its images and its model finds them; one that names no home opens, too."""

import os
import shutil
import sqlite3
from pathlib import Path

import pytest
import torch

from cenote.data import read_folders
from cenote.search.ask import Question, ask
from cenote.search.embedded import Embedded
from cenote.search.filters import Filter
from cenote.search.index import fill
from cenote.search.opening import check_there, words_of
from cenote.search.places import Places, split_model, whole_model
from cenote.search.store import Description

from .search_toys import COLOURS, SHAPES, Counting, Toy, picture


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
    made = Description(str(root / "clip"), "toy 1", 6, words={"name": str(root / "words.txt"), "digest": "d", "n": 0})
    fill(Embedded.open(root / "ix", made), read_folders(root / "photos"), Toy(), source=str(root / "photos"))  # type: ignore[arg-type]
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
        base.execute("delete from state where name = 'home'")


def every(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*.png"))


def test_everything_moves_along(root: Path) -> None:
    new = moved(root)
    index = Embedded.open(new / "ix")
    assert index.description.model == str(new / "clip") and index.description.words["name"] == str(new / "words.txt")
    check_there(index)
    assert sorted(index.known()) == every(new / "photos")
    answer = ask(Question(texts=("red",), near_duplicates="show"), index, Toy())  # type: ignore[arg-type]
    assert len(answer.results) == 8 and not any(result.missing for result in answer.results)
    assert {entry.source for entry in index.entries(torch.arange(8))} == {str(new / "photos")}
    for folder, count in ((new / "photos" / "square", 4), (root / "photos" / "square", 4), (new / "clip", 0)):
        assert len(index.select(Filter(folders=(str(folder),)))) == count
    assert stored(new / "ix")[0].startswith(str(root))  # who only reads changes nothing


def test_a_writer_settles_where_it_is(root: Path) -> None:
    new, model = moved(root), Counting()
    source = str(new / "photos")
    report = fill(Embedded.open(new / "ix"), read_folders(new / "photos"), model, source=source)  # type: ignore[arg-type]
    assert (report.same, report.removed, report.moved, model.embedded) == (8, 0, 0, 0)
    assert stored(new / "ix") == every(new / "photos")
    again = Path(shutil.move(new, root.parent / "third"))
    index = Embedded.open(again / "ix")
    assert index.description.model == str(again / "clip") and sorted(index.known()) == every(again / "photos")


def test_a_file_that_changed_on_the_way_is_embedded_again(root: Path) -> None:
    new, model = moved(root), Counting()
    picture("red", "stripes", 77).resize((90, 90)).save(new / "photos" / "square" / "red.png")
    report = fill(Embedded.open(new / "ix"), read_folders(new / "photos"), model, source=str(new / "photos"))  # type: ignore[arg-type]
    assert (report.embedded, report.same, model.embedded) == (1, 7, 1) and len(Embedded.open(new / "ix")) == 8


def test_others_in_the_old_place_are_not_taken_for_them(root: Path) -> None:
    new = moved(root)
    shutil.copytree(new, root)
    for path in every(root / "photos"):
        picture("blue", "stripes", 5).resize((200, 200)).save(path)
    index = Embedded.open(new / "ix")
    assert sorted(index.known()) == every(new / "photos") and index.description.model == str(new / "clip")


def test_a_copy_without_its_images_has_them_where_they_were(root: Path) -> None:
    copy = root.parent / "backup" / "deep" / "ix"
    shutil.copytree(root / "ix", copy)
    index = Embedded.open(copy)
    assert sorted(index.known()) == every(root / "photos") and index.description.model == str(root / "clip")
    with index.writing():
        pass
    assert stored(copy) == every(root / "photos")
    (copy.parent / "photos" / "square").mkdir(parents=True)
    picture("blue", "stripes", 5).resize((200, 200)).save(copy.parent / "photos" / "square" / "red.png")
    assert sorted(Embedded.open(copy).known()) == every(root / "photos")  # of another size: another picture


def test_an_image_that_is_there_twice_once_settled_is_one(root: Path) -> None:
    new = root.parent / "a" / "copy"
    shutil.copytree(root, new)
    forget_home(new / "ix")  # which an older Cenote then filled: every image under both names
    fill(Embedded.open(new / "ix"), read_folders(new / "photos"), Toy(), source=str(new / "photos"))  # type: ignore[arg-type]
    assert len(Embedded.open(new / "ix")) == 16
    with sqlite3.connect(new / "ix" / "images.sqlite") as base:
        base.execute("update state set value = ? where name = 'home'", (os.fsencode(root / "ix"),))
    with Embedded.open(new / "ix").writing():
        pass
    assert stored(new / "ix") == every(new / "photos") and len(Embedded.open(new / "ix")) == 8


def test_through_a_link_it_is_at_home(root: Path) -> None:
    (root.parent / "link").symlink_to(root)
    index = Embedded.open(root.parent / "link" / "ix")
    assert sorted(index.known()) == every(root / "photos")
    with index.writing():
        pass
    assert stored(root / "ix") == every(root / "photos")


def test_an_index_without_a_home(root: Path) -> None:
    forget_home(root / "ix")
    assert sorted(Embedded.open(root / "ix").known()) == every(root / "photos")
    new = moved(root)
    index = Embedded.open(new / "ix")
    assert sorted(index.known()) == [str(root / path.relative_to(new)) for path in map(Path, every(new / "photos"))]
    with pytest.raises(ValueError, match=rf"no more in {root}/clip: `cenote index IMAGES -o {new}/ix --model FOLDER`"):
        check_there(index)
    with pytest.raises(ValueError, match=rf"the word list of {new}/ix is no more in {root}/words.txt: give it with"):
        words_of(index, Toy())  # type: ignore[arg-type]
    with index.writing():
        pass
    assert Embedded.open(new / "ix").table.state("home") == os.fsencode(new / "ix")


def test_names_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, parts in {
        "text-space": ("text-space", ""), "text-space/lite0": ("text-space/lite0", ""), "/x/clip": ("", "/x/clip"),
        "open_clip/V/laion": ("open_clip/V/", "laion"), "open_clip/V//x/w.pt": ("open_clip/V/", "/x/w.pt"),
        "open_clip/hf-hub:a/b": ("open_clip/hf-hub:a/b", ""), "open_clip/local-dir:/x": ("open_clip/local-dir:", "/x"),
    }.items():  # fmt: skip
        assert split_model(name) == parts
    monkeypatch.chdir(tmp_path)
    for name in ("clip", "text-space", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "w.pt").touch()
    assert whole_model("clip") == str(tmp_path / "clip")
    assert whole_model("open_clip/V/w.pt") == f"open_clip/V/{tmp_path}/w.pt"
    for same in ("text-space", "open_clip/hf-hub:a/b", "open_clip/V/laion", "nowhere"):
        assert whole_model(same) == same
    places = Places(tmp_path / "b" / "ix", "/old/ix")
    (tmp_path / "b" / "w.pt").touch()
    assert places.description(Description("open_clip/V//old/w.pt", "i", 1)).model == f"open_clip/V/{tmp_path}/b/w.pt"
    assert places.now("world/tiny:a.png") == "world/tiny:a.png"
