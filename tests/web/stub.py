"""The server in this process, over a desk that answers at once: for what the server itself does."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from cenote.web.app import create_app
from cenote.web.photos import encode
from cenote.web.prompt import Prompt
from cenote.web.questions import About, Adopt, Decode, Photo, Picture, Question
from cenote.web.runs import Served
from cenote.web.state import Limits, State

EXAMPLE = "a" * 32


class StubWorker:
    pid = None


class StubDesk:
    """As `Desk`; `answer` says what it answers."""

    status = "ready"

    def __init__(self, answer: Callable[[Question], Any] | None = None) -> None:
        self.answer, self.asked = answer, list[Question]()
        self.waiting: dict[Question, Any] = {}
        self.worker = StubWorker()

    def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ask(self, question: Question) -> Any:
        self.asked.append(question)
        if self.answer is not None:
            found = self.answer(question)
            return await found if isinstance(found, Awaitable) else found
        if isinstance(question, About):
            return {"models": [], "index": None}
        if isinstance(question, Adopt):
            return {"digest": "b" * 32, "photo": Photo(b"the file", 40, 30, shown=jpeg())}
        if isinstance(question, Decode):
            return Photo(b"", 40, 30, shown=jpeg())
        return jpeg() if isinstance(question, Picture) else b'{"answered": true}'


def jpeg() -> bytes:
    from PIL import Image

    return encode(Image.new("RGB", (40, 30), "teal"))


def state_of(desk: Any = None, limits: Limits | None = None, **served: Any) -> State:
    ready = {
        "models": [],
        "index": None,
        "examples": {EXAMPLE: Photo(b"the file", 40, 30, "cat", jpeg())},
        "groups": {},
    }
    return State(Served(**served), desk or StubDesk(), limits or Limits(), ready)


def call(state: State, test: Callable[[httpx.AsyncClient], Awaitable[Any]], host: str = "127.0.0.1",
         names: tuple[str, ...] = ()) -> Any:  # fmt: skip
    async def main() -> Any:
        made = vars(state).setdefault("apps", {})  # making one takes a tenth of a second
        app = made.get((host, names)) or made.setdefault(
            (host, names), create_app(state, host, names)
        )
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8000"
        ) as client:
            return await test(client)

    return asyncio.run(main())


def get(
    state: State, path: str, host: str = "127.0.0.1", names: tuple[str, ...] = (), **options: Any
) -> httpx.Response:
    async def test(client: httpx.AsyncClient) -> httpx.Response:
        return await client.request(options.pop("method", "GET"), path, **options)

    found: httpx.Response = call(state, test, host, names)
    return found


@asynccontextmanager
async def listening(state: State) -> AsyncIterator[int]:
    """As `cenote serve` listens, on a port of its own."""
    door = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        create_app(state), log_level="warning", access_log=False, http=Prompt, log_config=None
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([door]))
    await until(lambda: server.started)
    try:
        yield door.getsockname()[1]
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
