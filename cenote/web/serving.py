"""From a command line to a page that answers, and back to nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

import uvicorn

from .app import create_app
from .desk import Desk
from .process import Died, Worker
from .prompt import Prompt
from .questions import Refusal
from .runs import Served
from .state import Limits, State

GRACE = 3  # seconds that open requests have when the server ends
CLIENTS = 512  # at the same time; more are told 503


def serve(
    served: Served,
    host: str = "127.0.0.1",
    port: int = 8000,
    names: Sequence[str] = (),
    limits: Limits | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Answer until SIGINT or SIGTERM. What cannot be served is a ValueError before anything listens."""
    asyncio.run(_serve(served, _bound(host, port), host, names, limits or Limits(), say))


async def _serve(
    served: Served,
    door: socket.socket,
    host: str,
    names: Sequence[str],
    limits: Limits,
    say: Callable[[str], None],
) -> None:
    desk = Desk(Worker(served), limits.queue)
    try:
        ready = await desk.start()
    except Refusal as refusal:
        raise ValueError(refusal.sentence) from None
    except Died as death:
        raise RuntimeError(f"the worker {death} while it started") from None
    app = create_app(State(served, desk, limits, ready), host, names)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=GRACE,
        backlog=1024, h11_max_incomplete_event_size=64 << 10, limit_concurrency=CLIENTS, http=Prompt,
    )  # fmt: skip
    server = _Server(config, desk, lambda: say(f"{_told(served, ready)}: {address(door)}"))
    try:
        await server.serve([door])
    finally:
        desk.worker.close()


class _Server(uvicorn.Server):
    """Tells when it answers; and before it ends, those who wait for the worker, so that nothing is cut off."""

    def __init__(self, config: uvicorn.Config, desk: Desk, started: Callable[[], None]) -> None:
        super().__init__(config)
        self.desk, self.tell = desk, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.tell()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.desk.close()
        await super().shutdown(sockets)


def address(door: socket.socket) -> str:
    host, port = door.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"


def _bound(host: str, port: int) -> socket.socket:
    """Before anything is loaded: a port in use is told at once."""
    try:
        family, kind, proto, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        door = socket.socket(family, kind, proto)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(where)
        return door
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(
            f"{host}:{port} cannot be listened at ({reason}): choose another --port or --host"
        ) from None


def _told(served: Served, ready: dict[str, object]) -> str:
    models, index = ready["models"], ready["index"]
    parts = (
        [f"{len(models)} model{'s' * (len(models) != 1)}"]
        if isinstance(models, list) and models
        else []
    )
    parts += [f"{index['images']} images to search"] if isinstance(index, dict) else []
    parts += ["a tournament"] if served.tournaments else []
    return ", ".join(parts) or "the page"
