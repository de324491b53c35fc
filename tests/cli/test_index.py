"""`cenote index` with `cenote search` and `cenote serve`, when folders were moved, and when input or machine is bad."""

import ctypes
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from cenote.cli import main
from cenote.data.synthetic import World, write_world
from cenote.models import create_model
from cenote.models.image_text.small_clip import SmallClip, save_image_text
from cenote.models.image_text.text_encoder import TextTower, Words
from cenote.search.local_store import LocalStore

THINGS = ("cat", "bird", "sketch", "photo")


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """world/, clip/, words.txt and index/, as in the folder of a demo, which was moved after that."""
    folder = tmp_path_factory.mktemp("demo") / "old"
    write_world(World.preset("tiny", images=24), folder / "world", jobs=1, progress=False)
    torch.manual_seed(0)
    words = Words.of(THINGS, context=8)
    tower = TextTower(len(words), 16, 8, width=16, layers=1, heads=2)
    image = create_model("resnet_micro", "gap", 0, embedding_dim=16)
    save_image_text(SmallClip(image, tower, words, things=THINGS).eval(), folder / "clip")
    (folder / "words.txt").write_text("\n".join(THINGS))
    options = ["--model", str(folder / "clip"), "--words", str(folder / "words.txt")]
    assert (
        main(["index", str(folder / "world"), "-o", str(folder / "index"), "--quiet", *options])
        == 0
    )
    return Path(shutil.move(folder, folder.with_name("moved")))


@pytest.fixture
def whole(moved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(moved, tmp_path / "moved"))


def assert_refused(
    capfd: pytest.CaptureFixture[str], names: list[str | Path], *argv: str | Path
) -> None:
    """Exit code 2 and one line that has all the names."""
    capfd.readouterr()
    assert main([str(word) for word in argv]) == 2
    error = capfd.readouterr().err
    assert all(str(name) in error for name in names) and len(error.splitlines()) == 1, error


def numbers(text: str, folder: Path) -> list[str]:
    """The numbers in a text, without those in the folder's name."""
    return re.findall(r"\b\d+\b", text.replace(str(folder), ""))


def test_a_folder_that_was_moved(whole: Path, capfd: pytest.CaptureFixture[str]) -> None:
    photo = next((whole / "world").rglob("*.png"))
    for argv in (
        ["--text", "cat"],
        ["--image", str(photo), "--text", "sketch", "--method", "freedom"],
    ):
        assert main(["search", str(whole / "index"), *argv]) == 0
        out, error = capfd.readouterr()
        assert str(whole / "world") in out and "missing" not in out and not error
    assert main(["index", str(whole / "world"), "-o", str(whole / "index")]) == 0
    assert numbers(capfd.readouterr().out, whole) == [
        "24",
        "24",
    ]  # images in the index, of which unchanged


def test_a_model_and_a_list_that_went_elsewhere(
    whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    index, photo = whole / "index", next((whole / "world").rglob("*.png"))
    clip = Path(shutil.move(whole / "clip", tmp_path / "clip"))
    for command in (["search", index, "--text", "cat"], ["serve", "--index", index, "--port", "0"]):
        assert_refused(capfd, [f"-o {index} --model"], *command)
    update = ["index", str(whole / "world"), "-o", str(index)]
    assert main([*update, "--model", str(clip)]) == 0
    assert main(["search", str(index), "--text", "cat"]) == 0
    words = Path(shutil.move(whole / "words.txt", tmp_path / "list.txt"))
    both = ["search", str(index), "--image", str(photo), "--text", "sketch", "--method", "freedom"]
    assert_refused(capfd, ["words.txt", "--words"], *both)
    assert main([*both, "--words", str(words)]) == 0
    assert main([*update, "--words", str(words)]) == main(both) == 0
    words.write_text("another")
    assert_refused(capfd, [words, index], *both)
    (tmp_path / "other.txt").write_text("another")
    assert_refused(capfd, [words, index], *update, "--words", tmp_path / "other.txt")


def test_images_that_went_elsewhere(
    whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    world = Path(shutil.move(whole / "world", tmp_path / "world"))
    ask = ["search", str(whole / "index"), "--text", "cat", "--top", "3"]
    assert main(ask) == 0
    out, error = capfd.readouterr()
    assert out.count("(missing)") == 3
    assert error.startswith("3 ") and f"-o {whole / 'index'}" in error
    assert main(["index", str(world), "-o", str(whole / "index")]) == 0
    assert numbers(capfd.readouterr().out, whole) == [
        "48",
        "24",
    ]  # images in the index, of which new files
    assert main(ask) == 0
    out, error = capfd.readouterr()
    assert "(missing)" not in out and not error


def test_an_index_is_not_a_run(whole: Path, capfd: pytest.CaptureFixture[str]) -> None:
    index = whole / "index"
    assert_refused(capfd, [f"--index {index}"], "serve", index)


def test_wrong_input(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    update_index = ["index", tmp_path, "-o", tmp_path / "ix"]
    assert_refused(capfd, ["--batch", "0"], *update_index, "--batch", "0")
    assert_refused(capfd, ["--workers", "-1"], *update_index, "--workers", "-1")
    assert_refused(capfd, [tmp_path / "empty"], "index", tmp_path / "empty", "-o", tmp_path / "ix")
    assert_refused(
        capfd, ["--weight"], "search", tmp_path, "--text", "a", "--weight", "0.5"
    )  # needs an image, too


def main_without_root_rights(argv: list[str]) -> int:
    """Run a command in a thread that may not read what its file permissions deny, even as root.

    Linux has capabilities per thread: those of the other threads stay.
    """

    def run() -> int:
        override, read_search = 1 << 1, 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        libc = ctypes.CDLL(None)
        libc.capget(header, sets)
        for i in range(3):  # effective, permitted, inheritable
            sets[i] &= ~(override | read_search)
        libc.capset(header, sets)
        return main(argv)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


@pytest.mark.skipif(
    sys.platform != "linux", reason="capabilities of a thread: run this test on Linux"
)
def test_folders_that_may_not_be_read(
    whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def denied(*argv: str | Path) -> tuple[int, list[str]]:
        capfd.readouterr()
        code = main_without_root_rights([str(word) for word in argv])
        return code, capfd.readouterr().err.splitlines()

    photos = tmp_path / "photos"
    shutil.copytree(whole / "world" / "images", photos)
    closed = sorted(path for path in photos.iterdir() if path.is_dir())[0]
    model = ["--model", whole / "clip", "--words", "none"]
    assert (
        main(["index", str(photos), "-o", str(tmp_path / "ix"), *map(str, model), "--quiet"]) == 0
    )
    try:
        for rights in (0, 0o111):
            closed.chmod(rights)
            code, error = denied("index", photos, "-o", tmp_path / "ix")
            assert code == 1 and f"{closed}: " in error[0], error
            assert (
                len(LocalStore.open(tmp_path / "ix")) == 24
            )  # images of a closed folder stay in the index
        photos.chmod(0)
        code, error = denied("index", photos, "-o", tmp_path / "ix2", *model)
        assert code == 2 and len(error) == 1 and str(photos) in error[0], error
        (whole / "index").chmod(0)
        for command in (
            ["search", whole / "index", "--text", "cat"],
            ["serve", "--index", whole / "index"],
        ):
            code, error = denied(*command)
            assert code == 2 and len(error) == 1 and str(whole / "index") in error[0], error
    finally:
        for folder in (photos, closed, whole / "index"):
            folder.chmod(0o755)
