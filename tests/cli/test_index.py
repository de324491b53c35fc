"""`cenote index` with `cenote search` and `cenote serve`, when folders were moved, and when input or machine is bad."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cenote.cli import main
from cenote.data.world import World, write_world
from cenote.models import create_model
from cenote.models.image_text.saving import save_image_text
from cenote.models.image_text.small import SmallClip
from cenote.models.image_text.text_tower import TextTower
from cenote.models.image_text.words import Words
from cenote.search.embedded import Embedded

ROOT = Path(__file__).parents[2]
THINGS = ("cat", "bird", "sketch", "photo")


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """world/, clip/, words.txt and index/, as a demo has them, and all of it moved since."""
    monkeypatch.setenv("CENOTE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "old"
    write_world(World.preset("tiny", images=24), folder / "world", jobs=1, progress=False, sheet=False)
    torch.manual_seed(0)
    words = Words.of(THINGS, context=8)
    tower = TextTower(len(words), 16, 8, width=16, layers=1, heads=2)
    image = create_model("resnet_micro", "gap", 0, embedding_dim=16)
    save_image_text(SmallClip(image, tower, words, things=THINGS).eval(), folder / "clip")
    (folder / "words.txt").write_text("\n".join(THINGS))
    own = ["--model", str(folder / "clip"), "--words", str(folder / "words.txt")]
    assert main(["index", str(folder / "world"), "-o", str(folder / "index"), "--quiet", *own]) == 0
    return Path(shutil.move(folder, tmp_path / "moved"))


def refused(capfd: pytest.CaptureFixture[str], sentence: str, *argv: str | Path, code: int = 2) -> None:
    capfd.readouterr()
    assert main([str(word) for word in argv]) == code
    told = capfd.readouterr().err
    assert sentence in told and len(told.splitlines()) == 1, told


def test_a_folder_that_was_moved(whole: Path, capfd: pytest.CaptureFixture[str]) -> None:
    photo = next((whole / "world").rglob("*.png"))
    for argv in (["--text", "cat"], ["--image", str(photo), "--text", "sketch", "--method", "freedom"]):
        assert main(["search", str(whole / "index"), *argv]) == 0
        told = capfd.readouterr()
        assert str(whole / "world") in told.out and "missing" not in told.out and not told.err
    assert main(["index", str(whole / "world"), "-o", str(whole / "index")]) == 0
    assert capfd.readouterr().out == f"24 images in {whole / 'index'}: 24 unchanged\n"


def test_a_model_and_a_list_that_went_elsewhere(whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    index, photo = whole / "index", next((whole / "world").rglob("*.png"))
    clip = Path(shutil.move(whole / "clip", tmp_path / "clip"))
    for command in (["search", index, "--text", "cat"], ["serve", "--index", index, "--port", "0"]):
        refused(capfd, f"-o {index} --model FOLDER` tells where it is now", *command)
    own = ["index", str(whole / "world"), "-o", str(index)]
    assert main([*own, "--model", str(clip)]) == 0
    assert main(["search", str(index), "--text", "cat"]) == 0
    words = Path(shutil.move(whole / "words.txt", tmp_path / "list.txt"))
    both = ["search", str(index), "--image", str(photo), "--text", "sketch", "--method", "freedom"]
    refused(capfd, "words.txt: give it with --words", *both)
    assert main([*both, "--words", str(words)]) == 0
    assert main([*own, "--words", str(words)]) == main(both) == 0
    words.write_text("another")
    refused(capfd, "is no more what", *both)
    (tmp_path / "other.txt").write_text("another")
    refused(capfd, "was made with the word list", *own, "--words", tmp_path / "other.txt")


def test_images_that_went_elsewhere(whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    world = Path(shutil.move(whole / "world", tmp_path / "world"))
    ask = ["search", str(whole / "index"), "--text", "cat", "--top", "3"]
    assert main(ask) == 0
    told = capfd.readouterr()
    assert told.out.count("(missing)") == 3
    assert told.err.startswith(f"3 of these are no more where they were: `cenote index IMAGES -o {whole / 'index'}`")
    assert main(["index", str(world), "-o", str(whole / "index")]) == 0
    assert "24 moved or copied" in capfd.readouterr().out
    assert main(ask) == 0
    told = capfd.readouterr()
    assert "(missing)" not in told.out and not told.err


def test_an_index_is_no_run(whole: Path, capfd: pytest.CaptureFixture[str]) -> None:
    index = whole / "index"
    refused(capfd, f"{index} is an index, no run: cenote serve --index {index}", "serve", index)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--batch", "0"], "--batch is a whole number at least 1, got 0"),
        (["--workers", "-1"], "--workers is a whole number at least 0, got -1"),
    ],
)
def test_wrong_numbers(tmp_path: Path, argv: list[str], sentence: str, capfd: pytest.CaptureFixture[str]) -> None:
    refused(capfd, sentence, "index", tmp_path, "-o", tmp_path / "ix", *argv)


def test_an_empty_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    refused(capfd, "empty: no images in this folder", "index", tmp_path / "empty", "-o", tmp_path / "ix")


def test_a_weight_needs_both(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    refused(capfd, "--weight is of a text beside an image", "search", tmp_path, "--text", "a", "--weight", "0.5")


DENIED = """
import ctypes, sys
from cenote.cli import main
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
libc = ctypes.CDLL(None)
libc.capget(header, data)
for i in (0, 1, 2):  # root, too, is refused
    data[i] &= ~(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH)
libc.capset(header, data)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="takes root's rights away as Linux does")
def test_folders_that_may_not_be_read(whole: Path, tmp_path: Path) -> None:
    def denied(*argv: str | Path) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-c", DENIED, *map(str, argv)], capture_output=True, text=True, timeout=170,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        return done.returncode, done.stderr

    photos = tmp_path / "photos"
    shutil.copytree(whole / "world" / "images", photos)
    closed = sorted(path for path in photos.iterdir() if path.is_dir())[0]
    model = ["--model", whole / "clip", "--words", "none"]
    assert main(["index", str(photos), "-o", str(tmp_path / "ix"), *map(str, model), "--quiet"]) == 0
    try:
        for rights in (0, 0o111):
            closed.chmod(rights)
            code, told = denied("index", photos, "-o", tmp_path / "ix")
            first = told.splitlines()[0]
            assert code == 1 and first == f"skipped {closed}: this folder may not be read", told
            assert len(Embedded.open(tmp_path / "ix")) == 24  # what nobody can look at does not leave
        photos.chmod(0)
        code, told = denied("index", photos, "-o", tmp_path / "ix2", *model)
        assert code == 2 and len(told.splitlines()) == 1 and "photos" in told, told
        (whole / "index").chmod(0)
        for command in (["search", whole / "index", "--text", "cat"], ["serve", "--index", whole / "index"]):
            code, told = denied(*command)
            assert code == 2 and len(told.splitlines()) == 1 and str(whole / "index") in told, told
    finally:
        for folder in (photos, closed, whole / "index"):
            folder.chmod(0o755)
