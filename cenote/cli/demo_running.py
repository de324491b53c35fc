"""Stages that run one after the other, each once: what is done is written down, what was killed goes on."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from .. import __version__
from .demo_stages import Plan, Stage, typed

MARK = "demo.json"  # who finds it in a folder may clear what the stages wrote there
TAIL = 4  # lines of a log that tell what went wrong
PATIENCE = 20.0  # seconds that an interrupted stage has to write down where it was
NOTED = 2.0  # seconds after which the time of a stage that runs is written down: who kills the demo loses no more
KNOWN = {"command", "after", "version", "begun", "name", "done", "seconds", "cpu_seconds"}


class StageFailed(RuntimeError):
    """A stage's command ended with an error."""


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """The folder for one demo at a time, and never somebody's own."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise ValueError(f"-o {folder} is not empty and holds no demo: name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / MARK, {"demo": 1})
    with open(folder / ".lock", "wb") as lock:
        try:
            fcntl.flock(
                lock, fcntl.LOCK_EX | fcntl.LOCK_NB
            )  # let go of when closed, also by a killed process
        except OSError:
            raise ValueError(
                f"another demo is running in {folder}: wait for it, or name another folder"
            ) from None
        yield


def done_before(stage: Stage, plan: Plan, after: str) -> dict[str, Any] | None:
    """Its record if this very command of this version ended well after the same runs of others, and its folder is
    still there."""
    found = _record(stage, plan)
    if (
        not found.get("done")
        or found["after"] != after
        or not (plan.folder / stage.folder).is_dir()
    ):
        return None
    same = found["version"] == __version__ and found["command"] == typed(
        stage, plan, stage.command()
    )
    return found if same else None


def run_stage(stage: Stage, plan: Plan, after: str, tick: Callable[[], object]) -> dict[str, Any]:
    """Run it to its end and write that down. `after` names the runs that it needs: a new one makes it worthless."""
    words = stage.command()
    command, own = typed(stage, plan, words), plan.folder / stage.folder
    before = _record(stage, plan)
    asked = {"command": command, "after": after, "version": __version__}
    goes_on = own.is_dir() and asked.items() <= before.items()
    if not goes_on:
        _clear(own)
        before = {"begun": time.time(), "seconds": 0.0, "cpu_seconds": 0.0}
    begun, seconds, cpu_seconds = (
        before["begun"],
        before["seconds"],
        before["cpu_seconds"],
    )  # of its parts so far
    name = sha256(f"{command}\n{after}\n{begun}".encode()).hexdigest()[:16]
    record: dict[str, Any] = {
        **asked,
        "begun": begun,
        "name": name,
        "resumed": goes_on,
        "done": False,
    }
    started, used, noted = time.monotonic(), _cpu(), 0.0

    def note(done: bool = False, running: int | None = None) -> None:
        nonlocal noted
        noted = time.monotonic()
        record["seconds"] = seconds + noted - started
        record["cpu_seconds"] = cpu_seconds + _cpu(running) - used
        write(plan.folder / "logs" / f"{stage.name}.json", record | {"done": done})

    def beat(child: int) -> None:
        tick()
        if time.monotonic() - noted > NOTED:
            note(running=child)

    code = 1
    note()
    try:
        code = _ended(
            [*words, *(["--resume"] if goes_on and stage.resume else [])],
            stage,
            plan,
            goes_on,
            beat,
        )
    finally:
        note(done=code == 0)
    if code:
        raise StageFailed(_told(stage, plan, code))
    return record | {"done": True}


def _clear(folder: Path) -> None:
    """Gone at once: half a folder would pass for what the stage left."""
    old = folder.with_name(f".old-{folder.name}")
    for _ in range(2):  # what a killed demo left of it, then what is there now
        if old.exists():
            shutil.rmtree(old)
        if folder.exists():
            os.replace(folder, old)


def _ended(
    words: Sequence[str], stage: Stage, plan: Plan, goes_on: bool, tick: Callable[[int], object]
) -> int:
    """The exit code of the command; what it says goes to its log. `tick` is told its process."""
    log = plan.folder / "logs" / f"{stage.name}.txt"
    output = plan.folder / stage.output if stage.output else None
    temporary = None if output is None else output.with_name(f".{output.name}")
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab" if goes_on else "wb") as said, _writing(temporary, said) as printed:
        child = subprocess.Popen(
            [sys.executable, "-m", "cenote.cli.demo_child", *words], stdin=subprocess.PIPE, stdout=printed,
            stderr=said, start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        with child:
            try:
                while child.poll() is None:
                    tick(child.pid)
                    time.sleep(0.2)
            except BaseException:
                _stop(child)
                raise
    if output is not None and temporary is not None and child.returncode == 0:
        os.replace(temporary, output)
    return child.returncode


@contextmanager
def _writing(path: Path | None, log: IO[bytes]) -> Iterator[IO[bytes]]:
    if path is None:
        yield log
        return
    with open(path, "wb") as file:
        yield file


def _stop(child: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C would, then for good."""
    child.send_signal(signal.SIGINT)
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)


def _told(stage: Stage, plan: Plan, code: int) -> str:
    log = plan.folder / "logs" / f"{stage.name}.txt"
    lines = [
        line
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip()
    ]
    why = "\n".join(lines[-TAIL:]) or "it said nothing"
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return (
        f"{why}\nthe stage {stage.name} {how}; all it said is in {log}. Once that is mended, the same cenote demo "
        "goes on there; a stage whose folder is removed runs again."
    )


def _record(stage: Stage, plan: Plan) -> dict[str, Any]:
    try:
        found = json.loads(
            (plan.folder / "logs" / f"{stage.name}.json").read_text(encoding="utf-8")
        )
        return found if set(found) >= KNOWN else {}
    except (OSError, ValueError, TypeError):
        return {}


def write(path: Path, content: Any) -> None:
    from cenote.data.files import write_atomically

    with write_atomically(path) as temporary:
        temporary.write_text(
            json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8"
        )


def _cpu(running: int | None = None) -> float:
    """Seconds of processor time of all stages so far and of their processes; of one that runs where /proc tells."""
    used, ticks = resource.getrusage(resource.RUSAGE_CHILDREN), 0
    if running is not None:
        with suppress(OSError):  # another system, or it has just ended
            stat = Path(f"/proc/{running}/stat").read_text(encoding="utf-8", errors="replace")
            ticks = sum(
                map(int, stat.rpartition(")")[2].split()[11:15])
            )  # its own and those of its children
    return used.ru_utime + used.ru_stime + ticks / os.sysconf("SC_CLK_TCK")
