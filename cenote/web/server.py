"""The HTTP server: its start and end, accepted requests, pages, static files, error messages."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
import re
import socket
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import h11
import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..data.processes import available_cores
from ..version import __version__
from . import about, look, photos, search
from .jobs import JobQueue, WorkerProcess
from .schemas import ERRORS, WorkerService
from .sources import Sources
from .state import Limits, ServerState, State

CORES_PER_WORKER = 4  # by default: more threads make one answer little faster
SHUTDOWN_SECONDS = 3  # for open requests, when the server stops
MAX_CONNECTIONS = 512  # more are answered with 503
CLIENT_CONNECTIONS = 64  # of one client of another machine
CLIENT_REQUESTS = 32  # of one client of another machine, at a time
CHALLENGE = 'Basic realm="cenote", charset="UTF-8"'
HEADER_SECONDS = 10.0  # from the connection, or from the first byte of its next request
PAGES = ("/", "/look", "/compare", "/search", "/tournament")
STATIC = Path(__file__).parent / "static"
COLOURS = Path(__file__).parents[1] / "report" / "templates" / "colours.css"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SCRIPT = re.compile(rb"<script\b[^>]*>(.*?)</script>", re.S | re.I)
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-cache",
}


def open_service(sources: Sources) -> WorkerService:
    from .service import Service  # imports torch, which the server does not need

    return Service(sources)


def serve(
    sources: Sources,
    host: str,
    port: int,
    allowed_hosts: Sequence[str],
    limits: Limits,
    workers: int | None = None,
    token: str | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM. What cannot be served raises ValueError before that."""
    count = workers or default_workers()
    asyncio.run(_serve(sources, _bind(host, port), host, allowed_hosts, limits, count, token))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def network_of(address: str) -> str:
    """Return the client that an address belongs to: one client may have 2**64 IPv6 addresses."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:  # of a socket without addresses
        return address
    if isinstance(parsed, ipaddress.IPv4Address) or parsed.is_loopback:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(parsed) >> 64 << 64))


def default_workers() -> int:
    """Return one worker per CORES_PER_WORKER, at most one per gigabyte of memory; one on a GPU."""
    from ..device import default_device  # imports torch

    if default_device().type != "cpu":
        return 1
    gigabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30
    return max(1, min(available_cores() // CORES_PER_WORKER, gigabytes))


async def _serve(
    sources: Sources,
    listener: socket.socket,
    host: str,
    allowed_hosts: Sequence[str],
    limits: Limits,
    workers: int,
    token: str | None,
) -> None:
    threads = None if workers == 1 else max(1, available_cores() // workers)
    processes = [WorkerProcess(sources, open_service, threads) for _ in range(workers)]
    jobs = JobQueue(processes, limits.queue)
    try:
        startup = await jobs.start()
    except (BrokenProcessPool, TimeoutError) as error:
        raise RuntimeError(f"the worker process did not start ({error})") from None
    state = ServerState(sources, jobs, startup, limits)
    config = uvicorn.Config(
        create_app(state, host, allowed_hosts, token),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        h11_max_incomplete_event_size=64 << 10,
        limit_concurrency=MAX_CONNECTIONS,
        http=HeaderTimeoutProtocol,
    )
    listener.listen(config.backlog)
    contents = {
        "models": len(startup.contents.models),
        "indexed images": startup.contents.index.images if startup.contents.index else 0,
        "tournaments": len(sources.tournaments),
        "workers": workers,
    }
    served = ", ".join(f"{name}: {number}" for name, number in contents.items() if number)
    print(f"Serving at {address(listener)} ({served})", flush=True)
    following = asyncio.create_task(state.follow_index())
    try:
        await _Server(config, jobs).serve([listener])
    finally:
        following.cancel()
        jobs.close()


class _Server(uvicorn.Server):
    """Fail waiting jobs before the shutdown, so that their requests are answered, not cut off."""

    def __init__(self, config: uvicorn.Config, jobs: JobQueue) -> None:
        super().__init__(config)
        self.jobs = jobs

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.jobs.close()
        await super().shutdown(sockets)


class HeaderTimeoutProtocol(H11Protocol):
    """Close connections whose headers do not arrive in time, and too many of one client.

    uvicorn has no setting for either.
    """

    timeout: asyncio.TimerHandle | None = None
    network = ""  # of the client
    clients: ClassVar[Counter[str]] = Counter()  # by network

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.network = network_of((transport.get_extra_info("peername") or ("",))[0])
        self.clients[self.network] += 1
        if self.clients[self.network] > CLIENT_CONNECTIONS and not is_loopback(self.network):
            transport.close()
        self._set_timeout(True)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_timeout(self.conn.their_state is h11.IDLE and self.conn.trailing_data[0] != b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self.clients[self.network] -= 1
        if not self.clients[self.network]:
            del self.clients[self.network]
        self._set_timeout(False)
        super().connection_lost(exc)

    def _set_timeout(self, incomplete: bool) -> None:
        """Keep a timeout that runs already: more bytes do not give more time."""
        if incomplete and self.timeout is None:
            self.timeout = self.loop.call_later(HEADER_SECONDS, self.transport.close)
        elif not incomplete and self.timeout is not None:
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


def create_app(
    state: ServerState,
    host: str = "127.0.0.1",
    allowed_hosts: Iterable[str] = (),
    token: str | None = None,
) -> ASGIApp:
    app = FastAPI(
        title="Cenote",
        version=__version__,
        description="Attention maps of images, and image search by image, by text or by both.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        responses=ERRORS,
    )
    app.state.server = state
    app.router.redirect_slashes = False
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(Exception, _internal_error)
    app.include_router(_site(read_static()))
    for module in (about, look, photos, search):
        app.include_router(module.router)
    # Outside of the app, so that responses to internal errors get the headers, too.
    return SecurityMiddleware(app, host, allowed_hosts, token)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name, message = str([*first["loc"], "the request"][1]), str(first["msg"])
    return JSONResponse({"detail": f"{name}: {message[:1].lower()}{message[1:]}"}, 422)


async def _internal_error(request: Request, error: Exception) -> Response:
    message = f"this request failed ({type(error).__name__}): see the server's log"
    return JSONResponse({"detail": message}, 500)


class SecurityMiddleware:
    """Accept requests for this host only (against DNS rebinding), and from its own pages only.

    Other sites may link to pages, and nothing else. Starlette's TrustedHostMiddleware knows
    neither IPv6 addresses nor "any address", which listening on 0.0.0.0 needs. With a token, only
    requests that have it are answered. A client of another machine has a limited number of
    requests at a time.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        allowed_hosts: Iterable[str] = (),
        token: str | None = None,
    ) -> None:
        self.app, self.token = app, token
        self.requests = Counter[str]()  # that run, by the address of the client
        self.hosts = {"localhost", host.lower(), *(name.lower() for name in allowed_hosts)}
        self.any_address = host in ("0.0.0.0", "::")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        client = network_of((scope.get("client") or ("",))[0])
        self.requests[client] += 1
        try:
            app = self._refusal(scope) or self._limit(client) or self.app
            await app(scope, receive, send_with_headers)
        finally:
            self.requests[client] -= 1
            if not self.requests[client]:
                del self.requests[client]

    def _limit(self, client: str) -> ASGIApp | None:
        if self.requests[client] <= CLIENT_REQUESTS or is_loopback(client):
            return None
        message = f"{CLIENT_REQUESTS} of your requests are running: try again in a moment"
        return JSONResponse({"detail": message}, 503, {"retry-after": "1"})

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers, method = Headers(scope=scope), scope["method"]
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_allowed(hosts[0]):
            message = "unknown host name: open the address that cenote serve printed"
            return JSONResponse({"detail": message}, 400)
        if self.token is not None and not _has_token(headers.get("authorization"), self.token):
            message = "a token is needed: as the password, any user name, or Authorization: Bearer"
            return JSONResponse({"detail": message}, 401, {"www-authenticate": CHALLENGE})
        origin = headers.get("origin")
        changes = method not in ("GET", "HEAD")
        is_foreign = changes and origin is not None and not _is_same_origin(origin, hosts[0])
        # Another port of this machine is "same-site".
        if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            navigates = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
            is_foreign |= not navigates or scope["path"] not in (*PAGES, "/report", "/api")
        if is_foreign:
            message = "pages of other sites may not request this: use this server's page"
            return JSONResponse({"detail": message}, 403)
        return None

    def _is_allowed(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
            # Nobody can rebind a number.
            return name in self.hosts or (
                ipaddress.ip_address(name).is_loopback or self.any_address
            )
        except ValueError:
            return False


def _has_token(authorization: str | None, token: str) -> bool:
    """Compare in constant time; browsers send the token as the password of "Basic"."""
    scheme, _, value = (authorization or "").partition(" ")
    given = value.strip().encode()
    if scheme.lower() == "basic":
        try:
            given = b64decode(given, validate=True).partition(b":")[2]
        except ValueError:
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(given, token.encode())


def _is_same_origin(origin: str, host: str) -> bool:
    try:
        return not origin or urlsplit(origin).netloc == host
    except ValueError:  # such as http://[
        return False


def read_static() -> dict[str, bytes]:
    """Read all static files once: names in requests never become paths."""
    paths = [path for path in STATIC.iterdir() if path.suffix in MEDIA_TYPES]
    return {path.name: path.read_bytes() for path in (COLOURS, *paths)}


def _site(static: dict[str, bytes]) -> APIRouter:
    """Return the routes of the pages, their static files and the report."""
    router = APIRouter(include_in_schema=False)

    async def respond(name: str, request: Request) -> Response:
        if name not in static:
            raise HTTPException(404, "the page has no such file")
        return Response(static[name], media_type=MEDIA_TYPES[Path(name).suffix])

    router.add_api_route("/static/{name}", respond)
    names = dict.fromkeys(PAGES, "index.html") | {"/api": "api.html", "/favicon.ico": "favicon.svg"}
    for path, name in names.items():
        router.add_route(path, partial(respond, name))

    @router.get("/report")
    async def report(state: State) -> Response:
        if state.sources.report is None or not state.has_report():
            raise HTTPException(
                404, "no report is written yet: cenote tournament and demo write one"
            )
        content = await asyncio.to_thread(state.sources.report.read_bytes)
        headers = {
            "content-security-policy": await asyncio.to_thread(report_policy, content),
            "x-frame-options": "SAMEORIGIN",
            # Browsers do not open a sandboxed page that requires its own browsing context group.
            "cross-origin-opener-policy": "unsafe-none",
        }
        return Response(content, media_type=MEDIA_TYPES[".html"], headers=headers)

    return router


def report_policy(page: bytes) -> str:
    """Return the content security policy of a report, a single file whose scripts are inline.

    Scripts are allowed by their digests. The sandbox separates them from this server's own pages,
    because the folder of a report may come from somewhere else.
    """
    digests = {b64encode(sha256(script).digest()).decode() for script in SCRIPT.findall(page)}
    scripts = " ".join(f"'sha256-{digest}'" for digest in sorted(digests)) or "'none'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; "
        "font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; "
        "sandbox allow-scripts"
    )
