"""Middleware around everything: which requests are accepted, and the headers of every response."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-cache",
}


class SecurityMiddleware:
    """Accept requests for this host only (against DNS rebinding), and from its own pages only.

    Other sites may link to the `pages`, and nothing else. Starlette's TrustedHostMiddleware knows
    neither IPv6 addresses nor "any address", which listening on 0.0.0.0 needs.
    """

    def __init__(
        self, app: ASGIApp, pages: Iterable[str], host: str, allowed_hosts: Iterable[str] = ()
    ) -> None:
        self.app, self.pages = app, frozenset(pages)
        self.hosts = {"localhost", host.lower(), *(name.lower() for name in allowed_hosts)}
        self.any_address = _is_unspecified(host)

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

        app = self._refusal(scope) or self.app
        await app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers, method = Headers(scope=scope), scope["method"]
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_allowed(hosts[0]):
            return _refuse(400, "unknown host name: open the address that cenote serve printed")
        origin = headers.get("origin")
        if method not in ("GET", "HEAD") and origin and urlsplit(origin).netloc != hosts[0]:
            return _refuse(403, "pages of other sites may not send this: use this server's page")
        # Another port of this machine is "same-site".
        if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            navigates = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
            if not navigates or scope["path"] not in self.pages:
                return _refuse(
                    403, "pages of other sites may not request this: use this server's page"
                )
        return None

    def _is_allowed(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name in self.hosts:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self.any_address  # nobody can rebind a number


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _refuse(status: int, message: str) -> ASGIApp:
    return JSONResponse({"detail": message}, status)
