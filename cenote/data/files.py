"""How files are written: atomically, under temporary names, in locked output folders."""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from uuid import uuid4

from filelock import BaseFileLock, FileLock, Timeout

LOCK, COMMAND = ".lock", "command.txt"
IMAGES = ".images.json"  # sizes, times and digests of the images when a run began
TEMPORARY = re.compile(r"\.cenote-(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{12}(\..*)?")
ABANDONED_SECONDS = 86400  # after the last write to a temporary file of another machine


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; rename it to `path` on success, else delete it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays at the end: libraries choose the format by it.
    temporary = temporary_path(path.parent, path.suffix)
    temporary.touch(exist_ok=False)
    mode = temporary.stat().st_mode  # follows the umask; some libraries write files of mode 600
    try:
        yield temporary
        temporary.chmod(mode)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def temporary_path(folder: Path, suffix: str = "") -> Path:
    """Return an unused name that says which process of which machine uses it.

    The first call for a folder deletes what killed processes left behind in it.
    """
    _sweep_once(folder.absolute())
    return folder / f".cenote-{_host()}-{os.getpid()}-{uuid4().hex[:12]}{suffix}"


@cache
def _sweep_once(folder: Path) -> None:
    sweep(folder)


def sweep(folder: Path) -> None:
    """Delete the temporary files and folders of processes that have ended."""
    for path in folder.iterdir():
        match = TEMPORARY.fullmatch(path.name)
        if match and _is_abandoned(path, match["host"], int(match["pid"])):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _is_abandoned(path: Path, host: str, pid: int) -> bool:
    try:
        if host == _host() and os.name == "posix":
            os.kill(pid, 0)  # signal 0 only asks whether the process exists
        return time.time() - path.stat().st_mtime > ABANDONED_SECONDS
    except ProcessLookupError:
        return True
    except OSError:  # a process of another user, or a file that is deleted already
        return False


@cache
def _host() -> str:
    """Return a digest of the machine's name and, on Linux, of the container's process numbers."""
    name = socket.gethostname()
    with suppress(OSError):
        name += os.readlink("/proc/self/ns/pid")
    return blake2b(name.encode(errors="surrogateescape"), digest_size=4).hexdigest()


def try_lock(path: Path) -> BaseFileLock | None:
    """Return the held lock of a file; None if another process holds it.

    The operating system releases the lock when the process ends, however it ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    return lock


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of an output folder; raise ValueError if another process writes it.

    An error before anything is written leaves no folder behind.
    """
    lock = try_lock(folder / LOCK)
    if lock is None:
        raise ValueError(f"another process is writing {folder}: wait for it, or use another -o")
    try:
        yield
    except BaseException:
        if _is_empty(folder):
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        lock.release()


@contextmanager
def command_folder(folder: Path, command: str, results: Iterable[str]) -> Iterator[None]:
    """Lock the folder of a command that has no --resume: the same command resumes.

    The results of another command are not overwritten. The folder stores the command that wrote
    it; `results` are the names of results, for folders of earlier versions.
    """
    with lock_folder(folder):
        path, writer = folder / COMMAND, ""
        with suppress(FileNotFoundError):
            writer = path.read_text(encoding="utf-8").strip()
        existing = [name for name in results if (folder / name).exists()]
        if writer and writer != command and not _is_empty(folder):
            raise ValueError(f"{folder} has the results of `{writer}`: use another -o")
        if not writer and existing:
            raise ValueError(f"{folder} already has {existing[0]}: use another -o")
        write_text(path, f"{command}\n")
        yield


def _is_empty(folder: Path) -> bool:
    return set(os.listdir(folder)) <= {LOCK, COMMAND, IMAGES}
