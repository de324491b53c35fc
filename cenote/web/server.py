"""Start the worker and the HTTP server, and stop both."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .app import create_app
from .jobs import JobQueue, WorkerProcess
from .service import Contents
from .sources import Sources
from .state import Limits, ServerState

SHUTDOWN_SECONDS = 3  # for open requests, when the server stops
MAX_CONNECTIONS = 512  # more are answered with 503
BACKLOG = 1024  # connections that wait to be accepted
HEADER_SECONDS = 10.0  # from the connection, or from its next request's first byte


def serve(
    sources: Sources,
    host: str = "127.0.0.1",
    port: int = 8000,
    allowed_hosts: Sequence[str] = (),
    limits: Limits | None = None,
    on_ready: Callable[[str], None] = print,
) -> None:
    """Serve until SIGINT or SIGTERM. What cannot be served raises ValueError before that.

    `on_ready` gets a line with the address, once that can be opened.
    """
    listener = _bind(host, port)
    asyncio.run(_serve(sources, listener, host, allowed_hosts, limits or Limits(), on_ready))


async def _serve(
    sources: Sources,
    listener: socket.socket,
    host: str,
    allowed_hosts: Sequence[str],
    limits: Limits,
    on_ready: Callable[[str], None],
) -> None:
    jobs = JobQueue(WorkerProcess(sources), limits.queue)
    try:
        startup = await jobs.start()
    except (BrokenProcessPool, TimeoutError) as error:
        raise RuntimeError(f"the worker process did not start ({error})") from None
    app = create_app(ServerState(sources, jobs, startup, limits), host, allowed_hosts)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=64 << 10,
        limit_concurrency=MAX_CONNECTIONS,
        http=HeaderTimeoutProtocol,
    )
    listener.listen(BACKLOG)
    on_ready(f"{_summary(sources, startup.contents)}: {address(listener)}")
    try:
        await _Server(config, jobs).serve([listener])
    finally:
        jobs.worker.close()


class _Server(uvicorn.Server):
    """Fail waiting jobs before the shutdown, so that their requests are answered, not cut off."""

    def __init__(self, config: uvicorn.Config, jobs: JobQueue) -> None:
        super().__init__(config)
        self.jobs = jobs

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.jobs.close()
        await super().shutdown(sockets)


class HeaderTimeoutProtocol(H11Protocol):
    """Close connections whose headers do not arrive in time; uvicorn has no setting for it."""

    timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_timeout()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:  # incomplete headers
            self._start_timeout()
        else:
            self._cancel_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timeout()
        super().connection_lost(exc)

    def _start_timeout(self) -> None:
        """Keep a timeout that runs already: more bytes do not give more time."""
        if self.timeout is None:
            self.timeout = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _cancel_timeout(self) -> None:
        if self.timeout is not None:
            self.timeout.cancel()
            self.timeout = None


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _bind(host: str, port: int) -> socket.socket:
    """Bind before the models are opened: a port in use is reported at once."""
    try:
        family, kind, protocol, _, name = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(name)
        return listener
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        message = f"cannot listen on {host}:{port} ({reason}): choose another --port or --host"
        raise ValueError(message) from None


def _summary(sources: Sources, contents: Contents) -> str:
    items = []
    if contents.models:
        items.append(f"{len(contents.models)} model{'s' * (len(contents.models) != 1)}")
    if contents.index is not None:
        items.append(f"{contents.index.images} images to search")
    if sources.tournaments:
        items.append("a tournament")
    return ", ".join(items) or "the page"
