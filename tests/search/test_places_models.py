"""A moved or copied index takes the model and the word list that it was made with, in its old place or beside it."""

import shutil
from pathlib import Path

import pytest

from cenote.models import image_text
from cenote.search.local_store import LocalStore
from cenote.search.opening import model_of, words_of
from cenote.search.places import Places, split_model, whole_model
from cenote.search.store import IndexDescription
from cenote.search.words import words_digest
from tests.toy_models import ColourModel


class Read(ColourModel):
    """A folder's: its identity is in a file."""

    def __init__(self, folder: str) -> None:
        self.identity = (Path(folder) / "identity").read_text()


def clip(folder: Path, identity: str) -> None:
    (folder / "clip").mkdir(parents=True, exist_ok=True)
    (folder / "clip" / "identity").write_text(identity)


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """clip/ and words.txt, and an index of them beside."""
    monkeypatch.setenv("CENOTE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(image_text, "create_image_text", Read)
    root = tmp_path / "old"
    clip(root, "toy 1")
    (root / "words.txt").write_text("red")
    words = {"name": str(root / "words.txt"), "digest": words_digest(["red"]), "n": 0}
    LocalStore.open(root / "ix", IndexDescription(str(root / "clip"), "toy 1", 6, words=words))
    return root


def test_a_copy_beside_another_model_keeps_its_own(root: Path) -> None:
    clip(root.parent / "b", "toy 2")
    shutil.copytree(root / "ix", root.parent / "b" / "ix")
    for _ in range(2):
        index = LocalStore.open(root.parent / "b" / "ix")
        assert model_of(index).identity == "toy 1" and index.description.model == str(root / "clip")
        with index.writer():
            pass


@pytest.mark.parametrize("others", [("clip", "words"), ("clip",), ("words",)])
def test_others_in_the_old_places(root: Path, others: tuple[str, ...]) -> None:
    new = Path(shutil.move(root, root.parent / "new"))
    if "clip" in others:
        clip(root, "toy 2")
    if "words" in others:
        root.mkdir(exist_ok=True)
        (root / "words.txt").write_text("blue")
    for folder in (new, new, root.parent / "third"):  # a writer in between, and another move
        if not folder.exists():
            shutil.move(new, folder)
        index = LocalStore.open(folder / "ix")
        assert model_of(index).identity == "toy 1" and index.description.model == str(
            folder / "clip"
        )
        assert words_of(index, ColourModel()).words == ["red"]  # type: ignore[arg-type]
        with LocalStore.open(folder / "ix").writer():
            pass
    clip(folder, "toy 3")
    (folder / "words.txt").write_text("green")
    index = LocalStore.open(folder / "ix")
    with pytest.raises(ValueError, match=r"'\S+/clip'"):
        model_of(index)
    with pytest.raises(ValueError, match=r"\S+/words\.txt"):
        words_of(index, ColourModel())  # type: ignore[arg-type]


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
    assert (
        places.description(IndexDescription("open_clip/V//old/w.pt", "i", 1)).model
        == f"open_clip/V/{tmp_path}/b/w.pt"
    )
    assert places.now("world/tiny:a.png") == "world/tiny:a.png"
