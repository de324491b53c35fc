"""Temporary names, locks, and the output folders of commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cenote.data import files
from cenote.data.files import command_folder, lock_folder, temporary_path, write_atomically

HOLD = """
import sys, time
from pathlib import Path
from cenote.data.files import lock_folder, temporary_path
with lock_folder(Path(sys.argv[1])):
    temporary_path(Path(sys.argv[1]), ".bin").write_bytes(b"half")
    print("locked", flush=True)
    time.sleep(60)
"""


def holder(folder: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "locked\n"
    return process


def test_a_folder_is_locked_until_its_process_ends_and_its_remains_are_swept(
    tmp_path: Path,
) -> None:
    process = holder(tmp_path)
    try:
        with pytest.raises(ValueError, match="another process is writing"), lock_folder(tmp_path):
            pass
        files.sweep(tmp_path)
        assert len(list(tmp_path.glob(".cenote-*.bin"))) == 1  # it may still be in use
    finally:
        process.kill()
        process.wait()
    with lock_folder(tmp_path), write_atomically(tmp_path / "a.txt") as path:
        path.write_text("a")
    assert sorted(os.listdir(tmp_path)) == [".lock", "a.txt"]


def test_files_of_other_machines_are_swept_after_a_day(tmp_path: Path) -> None:
    young, old = (tmp_path / f".cenote-00000000-1-{i:012x}.pt" for i in range(2))
    for path in (young, old, tmp_path / ".cenote-notes"):
        path.touch()
    os.utime(old, (0, 0))
    os.utime(tmp_path / ".cenote-notes", (0, 0))
    files.sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [young.name, ".cenote-notes"]


def test_equal_process_numbers_do_not_collide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with write_atomically(tmp_path / "a.txt") as first, write_atomically(tmp_path / "a.txt") as two:
        first.write_text("first")
        two.write_text("second")
    assert (tmp_path / "a.txt").read_text() == "first"  # the last to end


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_written_files_follow_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with write_atomically(tmp_path / "a") as path:
            path.touch(0o600)
            path.chmod(0o600)  # as safetensors does
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~umask


def test_long_names_have_temporary_names(tmp_path: Path) -> None:
    name = "x" * 250 + ".txt"
    files.write_text(tmp_path / name, "text")
    assert os.listdir(tmp_path) == [name]
    assert len(temporary_path(tmp_path, ".txt").name) < 60


def test_one_rule_for_existing_folders(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(OSError), command_folder(out, "cenote a", ["r.json"]):
        raise OSError("before anything is written")
    assert not out.exists()
    with command_folder(out, "cenote a", ["r.json"]):
        (out / "r.json").touch()
    with command_folder(out, "cenote a", ["r.json"]):
        pass
    with pytest.raises(ValueError, match="`cenote a`"), command_folder(out, "cenote b", ["r.json"]):
        pass
    assert (out / "r.json").exists()
    (out / "command.txt").unlink()
    with pytest.raises(ValueError, match=r"r\.json"), command_folder(out, "cenote a", ["r.json"]):
        pass
