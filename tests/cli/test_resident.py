"""The resident process of `cenote search`: what it prints, when it ends, and commands whose resident process fails."""

import json
import os
import pty
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cenote.cli import _resident, main
from cenote.models import create_model
from cenote.models.image_text.small_clip import SmallClip, save_image_text
from cenote.models.image_text.text_encoder import TextTower, Words
from cenote.search import Searcher

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    not hasattr(socket, "SO_PEERCRED"), reason="the process of a socket is known on Linux only"
)


def save_clip(folder: Path) -> None:
    words = Words.of(("cat", "bird"), context=8)
    tower = TextTower(len(words), 16, 8, width=16, layers=1, heads=2)
    image = create_model("resnet_micro", "gap", 0, embedding_dim=16)
    save_image_text(SmallClip(image, tower, words, things=("cat", "bird")).eval(), folder)


def make_index(folder: Path, count: int = 4) -> None:
    for i in range(count):
        path = folder / "photos" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((48, 48), 10 + 20 * i).convert("RGB").save(path)
    argv = ["index", str(folder / "photos"), "-o", str(folder / "ix"), "--quiet"]
    assert main([*argv, "--model", str(folder / "clip"), "--words", "none"]) == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index, `ix`, of four images."""
    folder = tmp_path_factory.mktemp("resident")
    save_clip(folder / "clip")
    make_index(folder)
    return folder


@pytest.fixture
def switched_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The socket of commands that run in the test process; nothing listens."""
    monkeypatch.setenv("CENOTE_RESIDENT", "1")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return _resident._socket_path()


def no_start(*_: object) -> None:
    raise AssertionError("a process was started")


def answer_by_itself(
    arguments: Sequence[str], capfd: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    capfd.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CENOTE_RESIDENT", "0")
        patch.setenv("CENOTE_DEVICE", "auto")  # --device changes it
        code = main(["search", *arguments])
    return code, *capfd.readouterr()


COMMANDS = [
    ["ix", "--text", "cat"],
    ["ix", "--text", "cat", "--json", "--why", "--class", "a"],
    ["ix", "--text", "zebra"],  # a message on stderr
    ["ix", "--text", "cat", "--class", "c"],  # exit code 2, with the index as it was typed
    ["ix", "--image", "photos/a/0.png", "--text", "cat", "--method", "sum"],
    ["ix", "--text", "cat", "--folder", "photos/b", "--exact"],
    ["../ix", "--text", "cat", "--device", "none"],  # exit code 2, and the next command has none
    ["./ix/", "--text", "cat", "--sheet", "found.png"],
]


def test_the_process_prints_what_the_command_prints(
    made: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both run in the test process."""
    folders = [made / "photos" if argv[0] == "../ix" else made for argv in COMMANDS]
    expected = []
    for folder, argv in zip(folders, COMMANDS, strict=True):
        monkeypatch.chdir(folder)
        expected.append(answer_by_itself(argv, capfd))
    (made / "found.png").unlink()
    replies, environment = list[dict[str, Any]](), dict(os.environ)
    searchers = dict[object, Searcher]()
    with ThreadPoolExecutor(
        1, initializer=_resident.SEARCHERS.set, initargs=(searchers,)
    ) as worker:
        for folder, argv in zip(folders, COMMANDS, strict=True):
            command, process = socket.socketpair()
            arguments = (process, "this", worker)
            server = threading.Thread(target=_resident._serve_request, args=arguments)
            server.start()
            replies.append(_resident._ask(command, make_request(folder, "search", *argv)))
            server.join()
    keys = ("code", "stdout", "stderr")
    assert [tuple(reply[key] for key in keys) for reply in replies] == expected
    assert [code for code, *_ in expected] == [0, 0, 0, 2, 0, 0, 2, 0]
    assert (made / "found.png").exists() and dict(os.environ) == environment
    assert len(searchers) == _resident.MAX_INDEXES


def make_request(folder: Path, *arguments: str, fingerprint: str = "this") -> dict[str, Any]:
    request: dict[str, Any] = {"fingerprint": fingerprint, "folder": str(folder), "columns": 80}
    return request | {"arguments": arguments}


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"\xff\n",
        b"[1]\n",
        b'{"code": 0}\n',
        b'{"stdout": "", "stderr": "", "code": 1}\n',
        None,
    ],
)
def test_a_reply_that_is_wrong_or_does_not_come(
    made: Path, switched_on: Path, reply: bytes | None, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Of another program at the socket, a process that was killed while it worked, or one that hangs (None)."""
    monkeypatch.chdir(made)
    monkeypatch.setattr(_resident, "_start", no_start)
    monkeypatch.setattr(_resident, "SILENCE", 0.2 if reply is None else 30)
    expected = answer_by_itself(COMMANDS[0], capfd)
    requests = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(switched_on))
        listener.listen()

        def answer() -> None:
            connection = listener.accept()[0]
            requests.append(json.loads(connection.makefile("rb").readline()))
            if reply is not None:
                with connection:
                    connection.sendall(reply)
                    connection.shutdown(socket.SHUT_RDWR)
            else:
                connection.recv(1)  # until the command has answered by itself

        server = threading.Thread(target=answer, daemon=True)
        server.start()
        assert (main(["search", *COMMANDS[0]]), *capfd.readouterr()) == expected
        server.join()
    assert requests[0]["arguments"] == ["search", *COMMANDS[0]]
    assert requests[0]["folder"] == str(made)


def test_when_it_is_not_used(
    made: Path,
    switched_on: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a terminal, when tracebacks are wanted, if others can open the folder, for Milvus."""
    monkeypatch.setattr(_resident, "_start", no_start)
    assert main(["search", str(made / "ix"), "--text", "cat"]) == 1  # it would be started
    with monkeypatch.context() as patch:
        patch.delenv("CENOTE_RESIDENT")
        assert main(["search", str(made / "ix"), "--text", "cat"]) == 0
    with monkeypatch.context() as patch:
        patch.setenv("CENOTE_DEBUG", "1")
        assert main(["search", str(made / "ix"), "--text", "cat"]) == 0
    switched_on.parent.chmod(0o755)
    assert main(["search", str(made / "ix"), "--text", "cat"]) == 0
    switched_on.parent.chmod(0o700)
    assert main(["search", str(made / "none.db"), "--text", "cat"]) == 2


def serving(path: Path, **constants: float) -> list[str]:
    """A process that serves without a command that starts it."""
    lines = [f"_resident.{name} = {value}" for name, value in constants.items()]
    serve = f"_resident.serve({str(path)!r}, 'this')"
    return [sys.executable, "-c", "\n".join(["from cenote.cli import _resident", *lines, serve])]


@contextmanager
def started(path: Path, **constants: float) -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(serving(path, **constants), env=env, stderr=subprocess.PIPE) as process:
        while (connection := _resident._connect(path)) is None:
            assert process.poll() is None
            time.sleep(0.01)
        connection.close()  # without a request, as a command that is interrupted
        try:
            yield process
        finally:
            process.terminate()


def test_one_process_until_it_is_idle_or_asked_by_other_code(tmp_path: Path) -> None:
    path, env = tmp_path / "socket", {**os.environ, "PYTHONPATH": str(ROOT)}
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))  # leaves the file behind
    assert _resident._connect(path) is None
    request = make_request(tmp_path, "--version")
    with started(path) as first:
        second = subprocess.run(serving(path, SILENCE=0.1), env=env, capture_output=True)
        assert second.returncode == 1 and b"Timeout" in second.stderr  # of the lock
        assert first.poll() is None
        with pytest.raises(ValueError):  # no reply: the folder does not exist
            _resident._ask(_resident._connect(path), make_request(tmp_path / "none", "--version"))
        assert _resident._ask(_resident._connect(path), request)["code"] == 0
        assert _resident._ask(_resident._connect(path), request | {"fingerprint": "other"}) == {}
        assert first.wait(60) == 0
    idle = subprocess.run(serving(path, IDLE=0.1), env=env, capture_output=True, timeout=60)
    assert idle.returncode == 0 and not idle.stderr


def test_a_command_that_waits_for_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets signs of life; if it is interrupted, its turn is cancelled and the process stays."""
    monkeypatch.setattr(_resident, "SIGN_OF_LIFE", 0.01)
    is_done, command, process = threading.Event(), *socket.socketpair()
    with ThreadPoolExecutor(1) as worker:
        running = worker.submit(is_done.wait)
        server = threading.Thread(target=_resident._serve_request, args=(process, "this", worker))
        server.start()
        with command:
            command.sendall(json.dumps(make_request(tmp_path, "--version")).encode() + b"\n")
            assert command.recv(2, socket.MSG_WAITALL) == b"\n\n"
        server.join()
        assert not running.done()
        is_done.set()


class Commands:
    """`cenote search ix` as a process, and the resident process of these commands."""

    def __init__(self, folder: Path, runtime: Path) -> None:
        self.folder = folder
        variables = {"XDG_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
        self.env = {**os.environ, **variables, "CENOTE_CACHE": str(runtime / "cache")}

    def start(
        self, *argv: str, silence: float = 60, stderr: int = subprocess.PIPE, **env: str
    ) -> subprocess.Popen[str]:
        """Start a command; its last line on stdout says whether it imported torch."""
        script = (
            "import sys; from cenote.cli import _resident, main; "
            f"_resident.SILENCE = {silence}; code = main({['search', 'ix', *argv]!r}); "
            "print('torch' in sys.modules); sys.exit(code)"
        )
        command = [sys.executable, "-c", script]
        env = {**self.env, "CENOTE_RESIDENT": "1", **env}
        stdout = subprocess.PIPE
        return subprocess.Popen(
            command, stdout=stdout, stderr=stderr, text=True, env=env, cwd=self.folder
        )

    def run(self, *argv: str, **options: Any) -> tuple[str, str]:
        """Return what a command prints, and "torch" if it imported that."""
        with self.start(*argv, **options) as process:
            stdout, stderr = process.communicate(timeout=150)
        # The pictures of the index show nothing.
        assert process.returncode == 0
        assert not stderr or (
            stderr.startswith("no image seems to show") and stderr.count("\n") == 1
        )
        *lines, imported = stdout.splitlines()
        return "\n".join(lines), "torch" if imported == "True" else ""

    def process_id(self) -> int | None:
        """Return the id of the resident process, if it listens."""
        folder = Path(self.env["XDG_RUNTIME_DIR"]) / "cenote" / "resident"
        for path in folder.glob("*[!k]"):  # not the lock
            if connection := _resident._connect(path):
                with connection:
                    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                    return int(struct.unpack("3i", peer)[0])
        return None


@pytest.fixture
def commands(made: Path, tmp_path: Path) -> Iterator[Commands]:
    for name in ("photos", "clip"):
        shutil.copytree(made / name, tmp_path / name)
    make_index(tmp_path)
    commands = Commands(tmp_path, tmp_path)
    yield commands
    if process := commands.process_id():
        os.kill(process, signal.SIGCONT)
        os.kill(process, signal.SIGKILL)


def has_ended(process: int) -> bool:
    """Wait until a process is gone, or is a zombie that nobody waits for."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_a_command_in_a_terminal_starts_it_for_the_next(commands: Commands) -> None:
    terminal, stderr = pty.openpty()
    with commands.start("--text", "cat", stderr=stderr, CENOTE_RESIDENT="") as first:
        stdout, _ = first.communicate(timeout=150)
    os.close(stderr)
    os.close(terminal)
    assert first.returncode == 0 and "4 images of 4 by text" in stdout
    assert stdout.endswith("False\n")  # torch was not imported
    process = commands.process_id()
    assert process and os.getsid(process) == process  # Ctrl-C and hang-ups do not reach it
    assert commands.run("--text", "cat") == (stdout.removesuffix("\nFalse\n"), "")
    files = [os.readlink(path) for path in Path(f"/proc/{process}/fd").iterdir()]
    files += [os.readlink(f"/proc/{process}/cwd"), Path(f"/proc/{process}/maps").read_text()]
    assert not any(str(commands.folder / "ix") in file for file in files)  # can be unmounted
    make_index(commands.folder, 6)
    assert "of 6 by text" in commands.run("--text", "cat")[0]
    shutil.rmtree(commands.folder / "ix")
    shutil.rmtree(commands.folder / "photos")
    make_index(commands.folder, 3)  # another index at the same place
    assert "of 3 by text" in commands.run("--text", "cat")[0]
    assert commands.process_id() == process


@pytest.mark.slow
def test_a_process_that_is_killed_hangs_or_has_other_settings(commands: Commands) -> None:
    expected, _ = commands.run("--text", "cat")
    killed = commands.process_id()
    assert killed
    os.kill(killed, signal.SIGKILL)
    assert commands.run("--text", "cat") == (expected, "")
    second = commands.process_id()
    assert second and second != killed
    assert commands.run("--text", "cat", TZ="Asia/Tokyo") == (expected, "")
    third = commands.process_id()
    assert third and third != second and has_ended(second)
    os.kill(third, signal.SIGSTOP)
    assert commands.run("--text", "cat", silence=0.5, TZ="Asia/Tokyo") == (expected, "torch")
    os.kill(third, signal.SIGCONT)
    assert commands.run("--text", "cat", TZ="Asia/Tokyo") == (expected, "")
    assert commands.process_id() == third


def test_ctrl_c_ends_the_command(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(_resident._socket_path()))
        listener.listen()
        with commands.start("--text", "cat") as process:
            connection = listener.accept()[0]
            with connection.makefile("rb") as lines:
                assert lines.readline()  # the command waits for the reply
                process.send_signal(signal.SIGINT)
                assert not lines.readline()
            assert process.wait(60) == 130


def test_the_process_ends_when_nobody_waits_for_its_answer(made: Path, tmp_path: Path) -> None:
    path, request = tmp_path / "socket", make_request(made, "search", *COMMANDS[0])
    with started(path, SIGN_OF_LIFE=0.01) as process:
        connection = _resident._connect(path)
        assert connection
        with connection:
            connection.sendall(json.dumps(request).encode() + b"\n")
            assert connection.recv(1) == b"\n"  # it imports torch
        assert process.wait(60) == 0


def test_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _resident._fingerprint()
    monkeypatch.setenv("CENOTE_RESIDENT", "1")
    monkeypatch.setenv("COLUMNS", "33")
    assert _resident._fingerprint() == before
    for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CENOTE_DEVICE", "TZ", "PYTHONPATH"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "other")
            assert _resident._fingerprint() != before, name
    mask = os.umask(0o077)
    try:
        assert _resident._fingerprint() != before or mask == 0o077
    finally:
        os.umask(mask)
