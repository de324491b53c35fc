"""`cenote.Index`: the same answers as `cenote search`."""

import json
from pathlib import Path

import pytest
from PIL import Image

import cenote
from cenote.cli import main
from cenote.search import load
from tests.synthetic import rectangles


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    data = rectangles(6)
    for i in range(6):
        (folder / ("dogs" if i % 2 else "cats")).mkdir(exist_ok=True)
        data.image(i).save(folder / ("dogs" if i % 2 else "cats") / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def index(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> cenote.Index:
    index = cenote.Index(tmp_path_factory.mktemp("indexes") / "ix")
    assert len(index) == 0
    with pytest.raises(ValueError, match="no images yet"):
        index.search("dog")
    assert index.add(photos).embedded == 6
    return index


def test_images_are_added_once(index: cenote.Index, photos: Path) -> None:
    assert index.add(photos).same == 6
    assert len(index) == 6


def test_a_text_finds_the_folder_as_the_command_does(
    index: cenote.Index, capsys: pytest.CaptureFixture[str]
) -> None:
    results = index.search("dog", top=3)
    assert {path.parent.name for path in results.paths} == {"dogs"}
    assert main(["search", index.setup.address, "--text", "dog", "--top", "3", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["path"] for row in printed] == [str(path) for path in results.paths]


def test_an_image_in_memory_finds_its_file(index: cenote.Index, photos: Path) -> None:
    file = photos / "cats" / "0.png"
    for image in (file, Image.open(file)):
        results = index.search(image=image, top=2, near_duplicates="show")
        assert results.paths[0] == file
        assert results[0].score == pytest.approx(1, abs=1e-3)
    sheet = index.search("dog", image=file, top=2).sheet()
    assert sheet.width > 100
    assert index.search("dog", image=file, top=2)._repr_html_().startswith("<p>")
    with pytest.raises(ValueError, match="has the class 'dog'; did you mean 'dogs'"):
        index.search(image=file, classes=["dog"])


def test_nonsense_is_said_to_be_unknown(index: cenote.Index) -> None:
    results = index.search("qwertyzxcv")
    assert not results and "does not know" in results.notes[0]


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        cenote.Index(tmp_path / "ix").add(tmp_path / "missing")
    assert not (tmp_path / "ix").exists()


def test_the_model_is_loaded_once(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []
    open_model = load.open_image_text
    monkeypatch.setattr(
        load, "open_image_text", lambda *a, **k: (loaded.append(a), open_model(*a, **k))[1]
    )
    index = cenote.Index(tmp_path / "ix")
    index.add(photos / "dogs")
    index.search("dog")
    index.add(photos / "cats")
    index.search("cat")
    assert len(loaded) == 1


def test_errors_name_arguments(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^local 5: .*square"):
        cenote.Index(tmp_path / "ix", local=5)
