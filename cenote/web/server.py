"""Start the worker and the HTTP server, and stop both."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool

import uvicorn

from .app import create_app
from .jobs import JobQueue, WorkerProcess
from .sources import Sources
from .state import Limits, ServerState

SHUTDOWN_SECONDS = 3  # for open requests, when the server stops
MAX_CONNECTIONS = 512  # more are answered with 503


def serve(
    sources: Sources, host: str, port: int, allowed_hosts: Sequence[str], limits: Limits
) -> None:
    """Serve until SIGINT or SIGTERM. What cannot be served raises ValueError before that."""
    asyncio.run(_serve(sources, _bind(host, port), host, allowed_hosts, limits))


async def _serve(
    sources: Sources,
    listener: socket.socket,
    host: str,
    allowed_hosts: Sequence[str],
    limits: Limits,
) -> None:
    jobs = JobQueue(WorkerProcess(sources), limits.queue)
    try:
        startup = await jobs.start()
    except (BrokenProcessPool, TimeoutError) as error:
        raise RuntimeError(f"the worker process did not start ({error})") from None
    state = ServerState(sources, jobs, startup, limits)
    config = uvicorn.Config(
        create_app(state, host, allowed_hosts),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        h11_max_incomplete_event_size=64 << 10,
        limit_concurrency=MAX_CONNECTIONS,
        http="h11",
    )
    listener.listen(config.backlog)
    contents = {
        "models": len(startup.contents.models),
        "indexed images": startup.contents.index.images if startup.contents.index else 0,
        "tournaments": len(sources.tournaments),
    }
    served = ", ".join(f"{name}: {number}" for name, number in contents.items() if number)
    print(f"Serving at {address(listener)} ({served})", flush=True)
    try:
        await _Server(config, jobs).serve([listener])
    finally:
        jobs.close()


class _Server(uvicorn.Server):
    """Fail waiting jobs before the shutdown, so that their requests are answered, not cut off."""

    def __init__(self, config: uvicorn.Config, jobs: JobQueue) -> None:
        super().__init__(config)
        self.jobs = jobs

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.jobs.close()
        await super().shutdown(sockets)


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
