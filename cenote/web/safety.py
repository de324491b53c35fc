"""What every request passes first: is it meant for this server? And the headers of every answer."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-cache",
}
PAGES = {"/", "/look", "/compare", "/search", "/tournament", "/report", "/api"}


class Safety:
    """Only requests for this host, against a stranger's name that resolves to it (DNS rebinding), and only its own
    pages may post, or ask at all: other sites may only link to a page."""

    def __init__(self, app: App, host: str = "127.0.0.1", names: Iterable[str] = ()) -> None:
        self.app = app
        self.names = {"localhost", host.lower(), *(name.lower() for name in names)}
        self.anywhere = _is_wildcard(host)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            given.setdefault(name.lower(), []).append(value)
        hosts = [value.decode("latin-1") for value in given.get(b"host", [])]

        def told(name: bytes) -> str:
            return given.get(name, [b""])[0].decode("latin-1")

        origin = told(b"origin")

        async def safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                added = [
                    (k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in own
                ]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            await _refuse(
                safely,
                400,
                "this host name is not served here: open the address that cenote serve printed",
            )
        elif (
            scope["method"] not in ("GET", "HEAD")
            and origin
            and urlsplit(origin).netloc != hosts[0]
        ):
            await _refuse(
                safely, 403, "another site's page may not send this: use this server's own page"
            )
        elif told(b"sec-fetch-site") in ("cross-site", "same-site") and not (
            scope["method"] == "GET"
            and told(b"sec-fetch-mode") == "navigate"
            and scope["path"] in PAGES
        ):  # another port of this machine is the same site
            await _refuse(
                safely, 403, "another site's page may not ask this: use this server's own page"
            )
        else:
            await self.app(scope, receive, safely)

    def _is_ours(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name in self.names
        # A number is no name that anybody could point elsewhere.
        return address.is_loopback or name in self.names or self.anywhere


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


async def _refuse(send: Send, status: int, sentence: str) -> None:
    body = json.dumps({"detail": sentence}).encode()
    kind = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": kind})
    await send({"type": "http.response.body", "body": body})
