"""What the server keeps between requests, and how its endpoints reach it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated, Any

from cachetools import LRUCache
from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from .jobs import JobQueue
from .schemas import ContentsRequest, Photo, Schema, Startup, WorkerRequest
from .sources import Sources

FOLLOW_SECONDS = 5.0  # between two looks at the files of the index
STORE_BYTES = 256 << 20  # of all uploaded photographs


class Limits(Schema):
    bytes: int = 20_000_000  # of an upload
    pixels: int = 50_000_000
    queue: int = 64  # requests that may wait


class PhotoStore(LRUCache[str, Photo]):
    """Uploaded photographs, the least recently used of which are dropped, and the examples."""

    def __init__(self, examples: dict[str, Photo], max_bytes: int) -> None:
        super().__init__(max_bytes, lambda photo: len(photo.content) + len(photo.shown))
        self.examples = examples

    def __missing__(self, digest: str) -> Photo:
        if digest in self.examples:
            return self.examples[digest]
        message = "this photograph is no longer stored: upload it again, or choose another one"
        raise HTTPException(404, message)


class ServerState:
    def __init__(
        self, sources: Sources, jobs: JobQueue, startup: Startup, limits: Limits | None = None
    ) -> None:
        self.sources, self.jobs, self.limits = sources, jobs, limits or Limits()
        self.contents, examples = startup
        largest = 2 * self.limits.bytes  # a file and the JPEG that is shown
        self.photos = PhotoStore(examples, max(STORE_BYTES, largest))
        self.complete = not sources.tournaments  # a running tournament adds models
        self.uploads = 0  # that are being read

    async def follow_index(self, seconds: float = FOLLOW_SECONDS) -> None:
        """Let the workers read the index again whenever it was written."""
        version = now = self.sources.index_version()
        while True:
            await asyncio.sleep(seconds)
            before, now = now, self.sources.index_version()
            if now == version or now != before:  # the same, or still being written
                continue
            with suppress(HTTPException):  # they are busy: again in some seconds
                self.contents = await self.jobs.ask_all(ContentsRequest())
                version = now

    async def answer(self, request: Request, job: WorkerRequest, content: bytes = b"") -> Any:
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

    def has_report(self) -> bool:
        return self.sources.report is not None and self.sources.report.is_file()


def _state_of(request: Request) -> ServerState:
    state: ServerState = request.app.state.server
    return state


State = Annotated[ServerState, Depends(_state_of)]
