"""The HTTP application: static files and pages, the views' endpoints, and error messages."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Iterable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from .. import __version__
from .middleware import SecurityMiddleware
from .schemas import ERRORS
from .state import ServerState, State
from .views import routers

STATIC = Path(__file__).parent / "static"
COLOURS = Path(__file__).parents[1] / "report" / "templates" / "colours.css"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGE_LINK = re.compile(rb'<a href="(/\w+)" data-view>')
SCRIPT = re.compile(rb"<script\b[^>]*>(.*?)</script>", re.S | re.I)


class StaticFile(NamedTuple):
    content: bytes
    media_type: str
    etag: str


def read_static() -> dict[str, StaticFile]:
    """Read all static files once: names in requests never become paths."""
    files = {}
    paths = [path for path in sorted(STATIC.iterdir()) if path.suffix in MEDIA_TYPES]
    for path in (COLOURS, *paths):
        content = path.read_bytes()
        etag = f'"{sha256(content).hexdigest()[:20]}"'
        files[path.name] = StaticFile(content, MEDIA_TYPES[path.suffix], etag)
    return files


def create_app(
    state: ServerState, host: str = "127.0.0.1", allowed_hosts: Iterable[str] = ()
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
    static = read_static()
    pages = ["/", *(path.decode() for path in PAGE_LINK.findall(static["index.html"].content))]
    app.include_router(_site(static, pages))
    for router in routers():
        app.include_router(router)
    # Outside of the app, so that responses to internal errors get the headers, too.
    return SecurityMiddleware(app, [*pages, "/report", "/api"], host, allowed_hosts)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name, message = str([*first["loc"], "the request"][1]), str(first["msg"])
    return JSONResponse({"detail": f"{name}: {message[:1].lower()}{message[1:]}"}, 422)


async def _internal_error(request: Request, error: Exception) -> Response:
    message = f"this request failed ({type(error).__name__}): see the server's log"
    return JSONResponse({"detail": message}, 500)


def _site(static: dict[str, StaticFile], pages: Iterable[str]) -> APIRouter:
    """Return the routes of the pages, their static files and the report."""
    router = APIRouter(include_in_schema=False)

    async def respond(name: str, request: Request) -> Response:
        if name not in static:
            raise HTTPException(404, "the page has no such file")
        file = static[name]
        headers = {"etag": file.etag}
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.media_type, headers=headers)

    router.add_api_route("/static/{name}", respond)
    names = dict.fromkeys(pages, "index.html") | {"/api": "api.html", "/favicon.ico": "favicon.svg"}
    for path, name in names.items():
        router.add_route(path, partial(respond, name))

    @router.get("/report")
    async def report(state: State) -> Response:
        if state.sources.report is None or not state.has_report():
            raise HTTPException(404, "there is no report yet: cenote tournament and demo write one")
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
