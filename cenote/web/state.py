"""What the server keeps between requests, and how its views reach it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

from cachetools import LRUCache, TTLCache
from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from .jobs import JobQueue
from .photos import STORE_BYTES, PhotoStore, shrink_jpeg
from .schemas import Schema
from .service import Startup, WorkerRequest
from .sources import Sources

THUMBNAIL_BYTES = 32 << 20  # of all cached thumbnails
STANDINGS_SECONDS = 1.0  # until the folder of a tournament is read again


class Limits(Schema):
    bytes: int = 20_000_000  # of an upload
    pixels: int = 50_000_000
    queue: int = 64  # requests that may wait


class ServerState:
    def __init__(
        self, sources: Sources, jobs: JobQueue, startup: Startup, limits: Limits | None = None
    ) -> None:
        self.sources, self.jobs, self.limits = sources, jobs, limits or Limits()
        self.contents = startup.contents
        self.pool_groups = startup.pool_groups
        largest = 2 * self.limits.bytes  # a file and the JPEG that is shown
        self.photos = PhotoStore(startup.examples, max(STORE_BYTES, largest))
        self.complete = not sources.tournaments  # a running tournament adds models
        self.uploads = 0  # that are being read
        self.standings: TTLCache[Path, Any] = TTLCache(maxsize=1, ttl=STANDINGS_SECONDS)
        self.standings_lock = asyncio.Lock()
        self.thumbnails: LRUCache[tuple[str, int], bytes] = LRUCache(THUMBNAIL_BYTES, len)

    async def answer(
        self, request: Request, job: WorkerRequest, content: bytes | None = None
    ) -> Any:
        """Let the worker answer; give up when the client disconnects."""

        async def disconnect() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        answer = asyncio.ensure_future(self.jobs.submit(job, content))
        disconnected = asyncio.ensure_future(disconnect())
        try:
            await asyncio.wait({answer, disconnected}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise HTTPException(499, "the client has disconnected")
            return answer.result()
        finally:
            answer.cancel()
            disconnected.cancel()

    async def jpeg(self, digest: str, side: int) -> bytes:
        """Return a photograph as a JPEG of at most `side` pixels."""
        photo = self.photos.get(digest)
        if max(photo.width, photo.height) <= side:
            return photo.shown
        if (digest, side) not in self.thumbnails:
            content = await asyncio.to_thread(shrink_jpeg, photo.shown, side)
            self.thumbnails[digest, side] = content
        return self.thumbnails[digest, side]

    def has_report(self) -> bool:
        return self.sources.report is not None and self.sources.report.is_file()


def _state_of(request: Request) -> ServerState:
    state: ServerState = request.app.state.server
    return state


State = Annotated[ServerState, Depends(_state_of)]
