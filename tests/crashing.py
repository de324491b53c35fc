"""End a process at each operation on files in turn, as a kill or a power failure would.

Operations are those that Python reports to audit hooks (open for writing, rename, remove, make and
remove folders, truncate, chmod), fsync, and the statements of SQLite. The library has no hook of its own.
"""

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from cenote.data import files

EVENTS = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.link")
CRASHED = 77


class Crash:
    """Ends this process before operation number `point`.

    `torn`: of the file that was opened last and is not synced, half of what was written is lost.
    """

    def __init__(self, point: int, torn: bool) -> None:
        self.point, self.torn, self.count = point, torn, 0
        self.opened: tuple[str, int] | None = None  # path, and size before
        self.ended = False

    def install(self) -> None:
        sys.addaudithook(self.see)
        self.fsync, os.fsync = os.fsync, self.sync
        connect = sqlite3.connect

        def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
            database = connect(*arguments, **options)
            database.set_trace_callback(lambda _: self.operation())
            return database

        sqlite3.connect = traced  # type: ignore[assignment]

    def sync(self, handle: int) -> None:
        self.operation()
        self.fsync(handle)
        self.opened = None

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS:
            self.operation()
        elif event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path, flags = os.fsdecode(arguments[0]), arguments[2]
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not path.startswith("/dev/"):
                self.operation()
                size = os.path.getsize(path) if os.path.exists(path) else 0
                self.opened = path, 0 if flags & os.O_TRUNC else size

    def operation(self) -> None:
        self.count += 1
        if self.count != self.point or self.ended:
            return
        self.ended = True
        if self.torn and self.opened is not None and os.path.isfile(self.opened[0]):
            path, before = self.opened
            os.truncate(path, (before + max(os.path.getsize(path), before)) // 2)
        os._exit(CRASHED)


def crashes(name: str, work: Callable[[], object], torn: bool, every: int = 1) -> Iterator[int]:
    """Yield the number of each point after a process that did `work` was ended there.

    `every`: of as many points only one. The number is printed: `pytest -s`.
    """
    for point in count(1, every):
        child = os.fork()
        if not child:
            code = 1
            try:
                Crash(point, torn).install()
                work()
                code = 0
            except BaseException as error:
                os.write(2, f"{error!r}\n".encode())
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            assert point > 1
            print(f"{name}: {point - 1} crash points")
            return
        assert code == CRASHED, code
        files._sweep_once.cache_clear()  # what follows is the next process
        yield point
