"""An index that was moved finds its images, its model and its word list."""

import os
import shutil
import sqlite3
from pathlib import Path

import pytest
import torch

from cenote.data import read_folders
from cenote.models import image_text
from cenote.search.index import update_index
from cenote.search.load import check_model_file, load_model, load_word_memory
from cenote.search.local_store import LocalStore
from cenote.search.metadata_db import Relocation
from cenote.search.query import SearchRequest, ask
from cenote.search.store import (
    Filter,
    ImageEntry,
    IndexDescription,
    absolute_model_name,
    split_model_name,
)
from cenote.search.words import words_digest
from tests.toy_models import COLOURS, SHAPES, ColourModel, CountingColourModel, picture


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
    words = {"name": str(root / "words.txt"), "digest": words_digest(["red"]), "n": 0}
    description = IndexDescription(str(root / "clip"), "toy 1", 6, words=words)
    update(LocalStore.open(root / "ix", description), root / "photos")
    return root


def update(index: LocalStore, photos: Path, source: str = "") -> object:
    model = CountingColourModel()
    report = update_index(index, read_folders(photos), model, source=source or str(photos))  # type: ignore[arg-type]
    assert report.embedded == model.embedded
    return report


def move(root: Path) -> Path:
    new = root.parent / "a" / "new"
    new.parent.mkdir()
    return Path(shutil.move(root, new))


def stored(index: Path) -> list[str]:
    with sqlite3.connect(index / "images.sqlite") as database:
        return sorted(os.fsdecode(path) for (path,) in database.execute("select path from images"))


def forget_home(index: Path) -> None:
    """Make it an index of an older Cenote, which did not store its folder."""
    with sqlite3.connect(index / "images.sqlite") as database:
        database.execute("delete from state where name in ('home', 'model_home')")


def paths_in(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*.png"))


def test_everything_moves_along(root: Path) -> None:
    new = move(root)
    index = LocalStore.open(new / "ix")
    assert index.description.model == str(new / "clip")
    assert index.description.words["name"] == str(new / "words.txt")
    check_model_file(index)
    assert sorted(index.images()) == paths_in(new / "photos")
    answer = ask(SearchRequest(texts=("red",), near_duplicates="show"), index, ColourModel())  # type: ignore[arg-type]
    assert len(answer.results) == 8 and not any(result.missing for result in answer.results)
    assert {entry.source for entry in index.entries(torch.arange(8))} == {str(new / "photos")}
    for folder, count in (("photos/square", 4), ("photos", 8), ("clip", 0), ("photo", 0)):
        assert len(index.select(Filter(folders=(str(new / folder),)))) == count
    assert len(index.select(Filter(("square",), folders=(str(new / "photos"),)))) == 4
    assert stored(new / "ix")[0].startswith(str(root))  # a reader changes nothing


def test_a_writer_stores_the_new_paths(root: Path) -> None:
    new = move(root)
    report = update(LocalStore.open(new / "ix"), new / "photos")
    assert (report.same, report.removed, report.moved) == (8, 0, 0)  # type: ignore[attr-defined]
    assert stored(new / "ix") == paths_in(new / "photos")
    third = Path(shutil.move(new, root.parent / "third"))
    index = LocalStore.open(third / "ix")
    assert index.description.model == str(third / "clip")
    assert sorted(index.images()) == paths_in(third / "photos")


def test_a_file_that_changed_after_the_move_is_embedded_again(root: Path) -> None:
    new = move(root)
    picture("red", "stripes", 77).resize((90, 90)).save(new / "photos" / "square" / "red.png")
    report = update(LocalStore.open(new / "ix"), new / "photos")
    assert (report.embedded, report.same) == (1, 7)  # type: ignore[attr-defined]
    assert len(LocalStore.open(new / "ix")) == 8


@pytest.mark.parametrize("name", ["photos", "imagenet-r-conversion:photos"])
def test_images_deleted_after_the_move_leave(root: Path, name: str) -> None:
    def source(folder: Path) -> str:
        return name.replace("photos", str(folder / "photos"))

    shutil.rmtree(root / "ix")
    index = LocalStore.open(root / "ix", IndexDescription("toy", "toy 1", 6))
    update(index, root / "photos", source(root))
    new = move(root)
    (new / "photos" / "square" / "red.png").unlink()
    index = LocalStore.open(new / "ix")
    assert {image.entry.source for image in index.images().values()} == {source(new)}
    report = update(index, new / "photos", source(new))
    assert (report.same, report.removed) == (7, 1)  # type: ignore[attr-defined]
    assert stored(new / "ix") == paths_in(new / "photos")


def test_an_index_that_was_moved_alone_uses_the_original_files(root: Path) -> None:
    copy = root.parent / "backup" / "deep" / "ix"
    shutil.copytree(root / "ix", copy)
    index = LocalStore.open(copy)
    assert sorted(index.images()) == paths_in(root / "photos")
    assert index.description.model == str(root / "clip")
    assert len(index.select(Filter(folders=(str(root / "photos"),)))) == 8
    with index.writer():
        pass
    assert stored(copy) == paths_in(root / "photos")


def test_a_copy_with_its_images_uses_the_copies(root: Path) -> None:
    copy = root.parent / "a" / "copy"
    shutil.copytree(root, copy)
    index = LocalStore.open(copy / "ix")
    assert sorted(index.images()) == paths_in(copy / "photos")
    for folder, count in ((copy, 8), (root, 0)):
        assert len(index.select(Filter(folders=(str(folder / "photos"),)))) == count


def test_an_image_that_is_stored_under_both_paths_becomes_one(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    entries = []
    for path in (old / "1.bmp", old / "2.bmp", new / "2.bmp"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
        entries.append(ImageEntry(str(path), path.stem, 1))
    with LocalStore.open(old / "ix", IndexDescription("toy", "toy 1", 6)).writer() as writer:
        writer.put(entries, torch.eye(6)[:3])
    (old / "1.bmp").rename(new / "1.bmp")
    (old / "2.bmp").unlink()
    shutil.move(old / "ix", new / "ix")
    with LocalStore.open(new / "ix").writer():
        pass
    index = LocalStore.open(new / "ix")
    assert stored(new / "ix") == sorted(index.images()) == [str(new / "1.bmp"), str(new / "2.bmp")]
    assert len(index) == 2 and index.moments().count == 2


@pytest.mark.parametrize("linked", ["ix", "folder"])
def test_through_a_symbolic_link(root: Path, linked: str) -> None:
    new, link = move(root), root.parent / "desk" / "link"
    link.parent.mkdir()
    link.symlink_to(new / "ix" if linked == "ix" else new)
    index = LocalStore.open(link if linked == "ix" else link / "ix")
    for _ in range(2):
        assert sorted(index.images()) == paths_in(new / "photos")
        assert index.description.model == str(new / "clip")
        with index.writer():
            pass
    third = Path(shutil.move(new, root.parent / "third"))
    assert sorted(LocalStore.open(third / "ix").images()) == paths_in(third / "photos")


def test_an_index_of_an_older_version_opens(root: Path) -> None:
    """It does not know its folder: its paths stay as they are until a writer stores it."""
    forget_home(root / "ix")
    assert sorted(LocalStore.open(root / "ix").images()) == paths_in(root / "photos")
    originals = paths_in(root / "photos")
    new = move(root)
    index = LocalStore.open(new / "ix")
    assert sorted(index.images()) == originals
    with pytest.raises(ValueError, match=rf"{root}/clip\b.*-o {new}/ix --model"):
        check_model_file(index)
    with pytest.raises(ValueError, match=rf"{new}/ix\b.*{root}/words\.txt"):
        load_word_memory(index, ColourModel())  # type: ignore[arg-type]
    with index.writer():
        pass
    assert LocalStore.open(new / "ix").db.state("home") == os.fsencode(new / "ix")


def test_files_without_a_common_root_stay(tmp_path: Path) -> None:
    moved = Relocation(tmp_path / "ix", b"/somewhere/else/ix")
    assert moved.path("/photos/a.jpg") == "/photos/a.jpg"
    assert moved.path("world/tiny:a.png") == "world/tiny:a.png"
    assert moved.path("/somewhere/else/a.jpg") == str(tmp_path / "a.jpg")
    assert not Relocation(tmp_path, os.fsencode(tmp_path)).moved


class ModelOfFolder(ColourModel):
    """A model whose identity is stored in its folder."""

    def __init__(self, folder: str) -> None:
        self.identity = (Path(folder) / "identity").read_text()


def test_a_moved_index_takes_the_model_that_it_was_made_with(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_text, "create_image_text", ModelOfFolder)
    (root / "clip" / "identity").write_text("toy 1")
    new = move(root)
    (root / "clip").mkdir(parents=True)
    (root / "clip" / "identity").write_text("toy 2")
    (root / "words.txt").write_text("blue")
    index = LocalStore.open(new / "ix")
    assert load_model(index).identity == "toy 1"
    assert load_word_memory(index, ColourModel()).words == ["red"]  # type: ignore[arg-type]
    (new / "clip" / "identity").write_text("toy 3")
    (new / "words.txt").write_text("green")
    with pytest.raises(ValueError, match=r"'\S+/clip'"):
        load_model(index)
    with pytest.raises(ValueError, match=r"\S+/words\.txt"):
        load_word_memory(index, ColourModel())  # type: ignore[arg-type]


def test_names_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, parts in {
        "text-space": ("text-space", ""),
        "text-space/lite0": ("text-space/lite0", ""),
        "/x/clip": ("", "/x/clip"),
        "open_clip/V/laion": ("open_clip/V/", "laion"),
        "open_clip/V//x/w.pt": ("open_clip/V/", "/x/w.pt"),
        "open_clip/hf-hub:a/b": ("open_clip/hf-hub:a/b", ""),
        "open_clip/local-dir:/x": ("open_clip/local-dir:", "/x"),
        "timm/hf:/x": ("timm/hf:", "/x"),
        "timm/vit//x/w.pt": ("timm/vit/", "/x/w.pt"),
    }.items():
        assert split_model_name(name) == parts
    monkeypatch.chdir(tmp_path)
    for name in ("clip", "text-space"):
        (tmp_path / name).mkdir()
    (tmp_path / "w.pt").touch()
    assert absolute_model_name("clip") == str(tmp_path / "clip")
    assert absolute_model_name("open_clip/V/w.pt") == f"open_clip/V/{tmp_path}/w.pt"
    for name in ("text-space", "open_clip/hf-hub:a/b", "open_clip/V/laion", "nowhere"):
        assert absolute_model_name(name) == name
    description = IndexDescription("open_clip/V//old/w.pt", "i", 1)
    moved = description.with_files(Relocation(tmp_path / "ix", b"/old/ix").path)
    assert moved.model == f"open_clip/V/{tmp_path}/w.pt"
