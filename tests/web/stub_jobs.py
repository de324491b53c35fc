"""The server in this process, over a job queue that answers at once: for what the server itself does."""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from PIL import Image

from cenote.web.about import ContentsRequest
from cenote.web.photos import DecodeRequest, encode_jpeg
from cenote.web.schemas import Contents, Photo, Startup, WorkerRequest
from cenote.web.search import EntryPhotoRequest, PictureRequest
from cenote.web.server import HeaderTimeoutProtocol, create_app
from cenote.web.sources import Sources
from cenote.web.state import Limits, ServerState

EXAMPLE = "a" * 32


class StubJobs:
    """As `JobQueue`; `answer` computes the answers."""

    status = "ready"

    def __init__(self, answer: Callable[[WorkerRequest], Any] | None = None) -> None:
        self.answer = answer
        self.submitted: dict[WorkerRequest, bytes] = {}
        self.waiting = Counter[str]()
        self.cache: dict[WorkerRequest, bytes] = {}

    async def submit(self, request: WorkerRequest, content: bytes = b"") -> Any:
        self.submitted[request] = content
        if self.answer is not None:
            answer = self.answer(request)
            return await answer if isinstance(answer, Awaitable) else answer
        if isinstance(request, ContentsRequest):
            return Contents(models=[], index=None)
        if isinstance(request, EntryPhotoRequest):
            return Photo("b" * 32, b"the file", 40, 30, jpeg())
        if isinstance(request, DecodeRequest):
            return Photo(request.digest, b"", 40, 30, jpeg())
        return jpeg() if isinstance(request, PictureRequest) else b'{"answered": true}'


def jpeg() -> bytes:
    return encode_jpeg(Image.new("RGB", (40, 30), "teal"))


def state_of(jobs: Any = None, limits: Limits | None = None, **sources: Any) -> ServerState:
    examples = {EXAMPLE: Photo(EXAMPLE, b"the file", 40, 30, jpeg(), "cat")}
    startup = Startup(Contents(models=[], index=None), examples)
    return ServerState(Sources(**sources), jobs or StubJobs(), startup, limits)


def call(
    state: ServerState,
    test: Callable[[httpx.AsyncClient], Awaitable[Any]],
    host: str = "127.0.0.1",
    names: tuple[str, ...] = (),
) -> Any:
    async def main() -> Any:
        apps = vars(state).setdefault("apps", {})  # creating one takes a tenth of a second
        if (host, names) not in apps:
            apps[host, names] = create_app(state, host, names)
        transport = httpx.ASGITransport(apps[host, names], raise_app_exceptions=False)
        base = "http://127.0.0.1:8000"
        async with httpx.AsyncClient(transport=transport, base_url=base) as client:
            return await test(client)

    return asyncio.run(main())


def get(
    state: ServerState,
    path: str,
    host: str = "127.0.0.1",
    names: tuple[str, ...] = (),
    **options: Any,
) -> httpx.Response:
    async def test(client: httpx.AsyncClient) -> httpx.Response:
        return await client.request(options.pop("method", "GET"), path, **options)

    response: httpx.Response = call(state, test, host, names)
    return response


@asynccontextmanager
async def listening(state: ServerState) -> AsyncIterator[int]:
    """Listen as `cenote serve` does, on a port of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        create_app(state),
        log_level="warning",
        access_log=False,
        http=HeaderTimeoutProtocol,
        log_config=None,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    await until(lambda: server.started)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


async def until(true: Callable[[], Any], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.01)


def report_in(folder: Path, page: str) -> Path:
    path = folder / "index.html"
    path.write_text(page)
    return path
