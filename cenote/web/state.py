"""All that a running server remembers: photographs, what the worker told of itself, how the tournament stands."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .. import __version__
from ..train.tournament.progress import read_standing
from .desk import Busy, Desk
from .photos import Photos, smaller
from .questions import About, Photo, Refusal
from .remembered import Remembered
from .runs import Served
from .static_files import read_static

FRESH = 1.0  # seconds that the standing of a tournament is good for
SMALL = 32 << 20  # bytes of smaller pictures that are kept


@dataclass(frozen=True)
class Limits:
    bytes: int = 20_000_000
    pixels: int = 50_000_000
    queue: int = 64


class State:
    def __init__(self, served: Served, desk: Desk, limits: Limits, ready: dict[str, Any]) -> None:
        self.served, self.desk, self.limits = served, desk, limits
        self.static = read_static()
        self.photos = Photos()
        self.photos.examples = dict(ready["examples"])
        self.groups = ready["groups"]
        self.opened = {"models": ready["models"], "index": ready["index"]}
        self.uploads = 0  # that are being read
        self.small: Remembered[tuple[str, int], bytes] = Remembered(SMALL)
        self.standing: tuple[float, dict[str, Any]] | None = None
        self.reading = asyncio.Lock()
        self.complete = False  # a tournament adds no more models

    async def about(self) -> dict[str, Any]:
        standing = None
        if self.served.tournaments:
            with suppress(Refusal):  # it may have been removed
                standing = await self.tournament()
        if standing is not None and not self.complete:
            with suppress(Busy, Refusal):  # what was known before is true still
                self.opened = await self.desk.ask(About())
                self.complete = standing["report"] is not None
        return {
            "version": __version__,
            "title": self.served.title,
            **self.opened,
            "examples": [
                {"photo": digest, "name": photo.name, "width": photo.width, "height": photo.height}
                for digest, photo in self.photos.examples.items()
            ],
            "tournament": standing and {"name": standing["name"], "running": standing["running"]},
            "report": self.has_report(),
            "limits": vars(self.limits),
        }

    async def tournament(self) -> dict[str, Any]:
        """Read again when it is a second old, by one reader for all who ask."""
        async with self.reading:
            if self.standing is None or time.monotonic() - self.standing[0] > FRESH:
                try:
                    found = await asyncio.to_thread(
                        read_standing, self.served.tournaments[0], self.groups
                    )
                except ValueError as error:
                    raise Refusal(404, str(error)) from None
                self.standing = time.monotonic(), found | {"page": self.has_report()}
            return self.standing[1]

    def has_report(self) -> bool:
        return self.served.report is not None and self.served.report.is_file()

    def photo(self, digest: str) -> Photo:
        found = self.photos.get(digest)
        if found is None:
            raise Refusal(
                404, "this photograph is not here any more: upload it again, or choose another one"
            )
        return found

    async def smaller(self, digest: str, side: int) -> bytes:
        photo = self.photo(digest)
        if max(photo.width, photo.height) <= side:
            return photo.shown
        found = self.small.get((digest, side))
        if found is None:
            found = await asyncio.to_thread(smaller, photo.shown, side)
            self.small.put((digest, side), found)
        return found

    def memory(self) -> float:
        """Megabytes of server and worker."""
        pages = sum(_pages(pid) for pid in (os.getpid(), self.desk.worker.pid) if pid is not None)
        if pages:
            return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)
        unit = (
            1e6 if sys.platform == "darwin" else 1e3
        )  # the most it ever was, in bytes or kilobytes
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)


def _pages(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
