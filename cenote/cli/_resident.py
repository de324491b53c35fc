"""A resident process that answers `cenote search`: importing torch takes longer than a search.

A command sends its arguments through a Unix socket in a folder that only the user can open. The
process runs the same command, sends back what it printed, and keeps the index and its model for the
next command. Whatever goes wrong with it, the command answers by itself.

Messages are lines of JSON, one request and one reply; the process sends empty lines while it works.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import site
import socket
import sys
import threading
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._messages import ARGUMENTS

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from ..search.query import Searcher

SWITCH = "CENOTE_RESIDENT"  # 0: never; 1: always; else: if stdout or stderr is a terminal
IDLE = 15 * 60  # seconds without a request after which the process ends
SILENCE = 5.0  # seconds without a line after which a command answers by itself
SIGN_OF_LIFE = 0.5  # seconds between empty lines
MAX_INDEXES = 2  # that stay open, each with a model
# Environment variables that libraries read when they are loaded, or that results depend on.
SETTINGS = re.compile(
    "(ATEN|CENOTE|CUDA|GOMP|HF|KMP|LD|MKL|NUMBA|OMP|ONEDNN|OPENBLAS|PYTORCH)_|PYTHON|TORCH|"
    "(HOME|TMPDIR|TZ|XDG_CACHE_HOME)$"
)
START = """import json, sys; sys.path[:] = json.loads(sys.argv.pop())
from cenote.cli._resident import serve; serve(*sys.argv[1:])"""
# Open indexes of the thread that answers, in the order of their use; None in any other process.
SEARCHERS: ContextVar[dict[object, Searcher] | None] = ContextVar("searchers", default=None)


def run_in_resident_process() -> int | None:
    """Let the resident process run this command, print its output and return its exit code.

    Returns None if it cannot or should not be used: then this process has to answer.
    """
    switch = os.environ.get(SWITCH)
    if switch == "0" or os.environ.get("CENOTE_DEBUG") or not hasattr(socket, "AF_UNIX"):
        return None
    if switch != "1" and not sys.stdout.isatty() and not sys.stderr.isatty():
        return None
    try:
        path, fingerprint = _socket_path(), _fingerprint()
        request = {
            "fingerprint": fingerprint,
            "arguments": ARGUMENTS.get() or sys.argv[1:],
            "folder": os.getcwd(),
            "columns": shutil.get_terminal_size().columns,
        }
        reply = _ask(_connect(path), request) or _ask(_start(path, fingerprint), request)
        stdout, stderr, code = (reply[name] for name in ("stdout", "stderr", "code"))
    except (OSError, RuntimeError, ValueError, LookupError, TypeError):
        return None
    if code not in (0, 2):  # an unexpected error: it may have happened in that process only
        return None
    print(stderr, end="", file=sys.stderr, flush=True)
    print(stdout, end="", flush=True)
    return code


def _socket_path() -> Path:
    """Return the path of the socket: one for each installation, in a folder of this user."""
    base = os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("XDG_CACHE_HOME")
    folder = Path(base or Path.home() / ".cache") / "cenote" / "resident"
    folder.mkdir(0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"other users can open {folder}")
    installation = f"{sys.executable} {__file__}".encode()
    return folder / hashlib.sha256(installation).hexdigest()[:16]


def _fingerprint() -> str:
    """Return a digest of the code, the installed packages and the settings of the process."""
    paths = [path for path in site.getsitepackages() if os.path.isdir(path)]
    for folder, _, names in os.walk(Path(__file__).parents[1]):
        paths += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    times = {path: os.stat(path).st_mtime_ns for path in paths}
    names = [name for name in os.environ if SETTINGS.match(name) and name != SWITCH]
    mask = os.umask(0o077)
    os.umask(mask)
    settings = [sys.version, mask, {name: os.environ[name] for name in names}, times]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _connect(path: Path) -> socket.socket | None:
    """Return a connection, or None if no process listens."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(SILENCE)
    try:
        connection.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError):  # refused: the process was killed
        connection.close()
        return None
    return connection


def _start(path: Path, fingerprint: str) -> socket.socket | None:
    """Start the process and return a connection, or None if it does not listen."""
    import subprocess

    search_path = json.dumps([os.path.abspath(entry) for entry in sys.path])
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", START, str(path), fingerprint, search_path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={**os.environ, SWITCH: "0"},
        start_new_session=True,  # neither Ctrl-C nor closing the terminal ends it
    )
    end, connection = time.monotonic() + SILENCE, None
    while connection is None and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
        connection = _connect(path)
    return connection


def _ask(connection: socket.socket | None, request: dict[str, Any]) -> dict[str, Any]:
    """Return the reply, empty without a process, or if it runs other code."""
    if connection is None:
        return {}
    with connection, connection.makefile("rb") as lines:
        connection.sendall(json.dumps(request).encode() + b"\n")
        return json.loads(next((line for line in lines if line.strip()), b""))


def serve(path: str, fingerprint: str) -> None:
    """Answer requests, one at a time, until none has come for a while."""
    from concurrent.futures import ThreadPoolExecutor

    from filelock import FileLock

    threading.excepthook = lambda _: None  # of a connection: its command answers by itself
    with (
        FileLock(f"{path}.lock", timeout=SILENCE),
        ThreadPoolExecutor(1, initializer=SEARCHERS.set, initargs=({},)) as worker,
        socket.socket(socket.AF_UNIX) as listener,
        suppress(TimeoutError),
    ):
        Path(path).unlink(missing_ok=True)  # of a process that has ended
        listener.bind(path)
        listener.listen()
        listener.settimeout(IDLE)
        while True:
            arguments = (listener.accept()[0], fingerprint, worker)
            threading.Thread(target=_serve_request, args=arguments).start()


def _serve_request(connection: socket.socket, fingerprint: str, worker: Executor) -> None:
    """Send the reply to a request; end the process if it should not answer another."""
    from concurrent.futures import wait

    reply: dict[str, Any] = {}
    with connection, connection.makefile("rb") as lines:
        connection.settimeout(SILENCE)
        request = json.loads(lines.readline())
        if request["fingerprint"] == fingerprint:
            future = worker.submit(_answer, request)
            while not wait([future], SIGN_OF_LIFE).done:
                try:
                    connection.sendall(b"\n")
                except OSError:  # Ctrl-C
                    if future.cancel():  # it was not running yet
                        return
                    os._exit(0)  # it may run for minutes
            reply = future.result()
        else:  # the command starts another process, and must not find this one again
            os.unlink(connection.getsockname())
        connection.sendall(json.dumps(reply).encode() + b"\n")
    if reply.get("code") not in (0, 2):
        os._exit(0)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run a command in its folder and with the width of its terminal."""
    from . import main

    stdout, stderr, environment = io.StringIO(), io.StringIO(), dict(os.environ)
    os.chdir(request["folder"])
    os.environ["COLUMNS"] = str(request["columns"])
    try:
        with redirect_stdout(stdout), redirect_stderr(stderr):
            code = main(request["arguments"])
    finally:
        os.chdir("/")
        os.environ.clear()  # --device is an environment variable
        os.environ.update(environment)
    for searcher in (SEARCHERS.get() or {}).values():
        searcher.store.release()
    return {"stdout": stdout.getvalue(), "stderr": stderr.getvalue(), "code": code}


def open_searcher(index: str, words: str | None, exact: bool) -> Searcher:
    """Open an index; in the resident process, return the one that is open already."""
    from ..search.query import Searcher

    searchers, folder = SEARCHERS.get(), Path(index).expanduser()
    if searchers is None:
        return Searcher.open(index, words, exact)
    word_list = words and os.path.abspath(words)
    versions = [_version(folder / "index.json"), _version(Path(words or ""))]
    key = (folder.absolute(), word_list, exact, os.environ.get("CENOTE_DEVICE"), *versions)
    searcher = searchers.pop(key, None)
    if searcher is None:
        searcher = Searcher.open(str(folder.absolute()), word_list, exact)
    else:
        searcher.store.refresh()
    searcher.store.where, searcher.word_list = str(folder), words  # messages name them as typed
    searchers[key] = searcher
    if len(searchers) > MAX_INDEXES:
        del searchers[next(iter(searchers))]
    return searcher


def _version(path: Path) -> tuple[int, ...]:
    """Return numbers that change when a file is replaced or written."""
    if not path.is_file():
        return ()
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
