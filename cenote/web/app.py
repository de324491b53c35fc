"""The server: every address, and how failures are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from .. import __version__
from . import shapes
from .desk import Busy
from .photos import LONGEST
from .questions import Adopt, Decode, Look, Picture, Question, Refusal, Search
from .safety import App, Safety
from .state import State
from .static_files import report_policy
from .uploads import FORM, read_upload

UPLOADS = 8  # files that are read at the same time
SLOW = 120.0  # seconds that one upload may take
FILTERS = 4000  # characters of all classes and domains of a search
KEEP = {"cache-control": "private, max-age=86400, immutable"}
JSON = "application/json"

Digest = Annotated[
    str, Query(pattern="^[0-9a-f]{32}$", description="of a photograph, from POST /api/photos")
]
Side = Annotated[int, Query(ge=16, le=LONGEST, description="pixels of the longer side, at most")]
Text = Annotated[str, Query(min_length=1, max_length=500)]
Number = Annotated[str, Query(pattern="^[0-9]{1,19}$", description="of an image in the index")]
Maps = Literal["auto", "pool", "cls", "rollout", "cam", "gradcam"]


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": shapes.Failure} for status in (400, *statuses)}


def picture(*statuses: int) -> dict[int | str, dict[str, Any]]:
    content = {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}
    return {200: {"content": content, "description": "a JPEG"}, **failures(*statuses)}


def create_app(state: State, host: str = "127.0.0.1", names: Iterable[str] = ()) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        state.desk.open()
        yield
        await state.desk.close()

    class Safe(FastAPI):
        def build_middleware_stack(self) -> App:
            """Around everything, the handler of unforeseen errors too: their answers have the headers as well."""
            return Safety(super().build_middleware_stack(), host, names)

    app = Safe(
        title="Cenote", version=__version__, docs_url=None, redoc_url=None, openapi_url="/api/openapi.json",
        description="Where a model looks, and images found by image, by text or by both.", lifespan=lifespan,
    )  # fmt: skip
    app.router.redirect_slashes = False
    _tell_failures(app)
    _pages(app, state)
    _photographs(app, state)
    _questions(app, state)
    return app


def _tell_failures(app: FastAPI) -> None:
    def told(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
        return JSONResponse({"detail": sentence}, status, headers)

    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        return told(error.status, error.sentence)

    @app.exception_handler(Busy)
    async def busy(request: Request, error: Busy) -> Response:
        return told(503, error.sentence, {"retry-after": str(error.seconds)})

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, error: Exception) -> Response:
        return told(
            500,
            f"this could not be answered ({type(error).__name__}): the server's terminal says more",
        )

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where, message = str([*first["loc"], "the request"][1]), str(first["msg"])
        return told(422, f"{where}: {message[:1].lower()}{message[1:]}")

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        known = {
            404: "there is nothing at this address",
            405: "this address does not take that method",
        }
        return told(
            error.status_code,
            known.get(error.status_code, str(error.detail)),
            dict(error.headers or {}),
        )


def _pages(app: FastAPI, state: State) -> None:
    def file(name: str, request: Request) -> Response:
        found = state.static.get(name)
        if found is None:
            raise Refusal(404, "there is no such file of the page")
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers={"etag": found.tag})
        return Response(found.content, media_type=found.kind, headers={"etag": found.tag})

    async def room(request: Request) -> Response:
        return file("index.html", request)

    for path in ("/", "/look", "/compare", "/search", "/tournament"):
        app.get(path, include_in_schema=False)(room)

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str, request: Request) -> Response:
        return file(name, request)

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon(request: Request) -> Response:
        return file("favicon.svg", request)

    @app.get("/api", include_in_schema=False)
    async def api(request: Request) -> Response:
        return file("api.html", request)

    @app.get("/report", include_in_schema=False)
    async def report() -> Response:
        path = state.served.report
        if path is None or not path.is_file():
            raise Refusal(
                404,
                "there is no report (yet): cenote tournament and cenote demo write one when they end",
            )
        page = await asyncio.to_thread(path.read_bytes)
        policy = await asyncio.to_thread(report_policy, page)
        # A browser does not open a sandboxed page that asks for a group of windows of its own.
        headers = {"content-security-policy": policy, "x-frame-options": "SAMEORIGIN",
                   "cross-origin-opener-policy": "unsafe-none"}  # fmt: skip
        return Response(page, media_type="text/html; charset=utf-8", headers=headers)

    @app.get("/health", response_model=shapes.Health, responses=failures())
    async def health() -> Any:
        return {
            "status": state.desk.status,
            "queue": len(state.desk.waiting),
            "memory_mb": state.memory(),
        }

    @app.get("/api/about", response_model=shapes.About, responses=failures(503))
    async def about() -> Any:
        """What is served: models, examples, the index, a tournament, and limits."""
        return await state.about()

    @app.get("/api/tournament", response_model=shapes.Tournament, responses=failures(404))
    async def tournament() -> Any:
        """How a tournament stands, live while it runs."""
        if not state.served.tournaments:
            raise Refusal(
                404, "no tournament is served here: `cenote serve` with a tournament's folder does"
            )
        return await state.tournament()


def _photographs(app: FastAPI, state: State) -> None:
    @app.post("/api/photos", status_code=201, response_model=shapes.Uploaded, openapi_extra=FORM,
              responses=failures(403, 408, 413, 415, 500, 503, 504))  # fmt: skip
    async def upload(request: Request) -> Any:
        """Keep a photograph in memory, under the digest of its file."""
        if state.uploads >= UPLOADS:
            raise Busy("many photographs are being uploaded: try again in a moment")
        state.uploads += 1
        try:
            async with asyncio.timeout(SLOW):
                name, content = await read_upload(request, state.limits.bytes)
        except TimeoutError:
            raise Refusal(408, f"the upload took longer than {SLOW:g} seconds") from None
        finally:
            state.uploads -= 1
        digest = await asyncio.to_thread(_digest, content)
        if digest not in state.photos:
            question = Decode(digest, name, content, state.limits.pixels)
            found = await _while_there(request, state.desk.ask(question))
            state.photos.put(digest, found._replace(content=found.content or content))
        photo = state.photo(digest)
        return {"photo": digest, "width": photo.width, "height": photo.height}

    @app.get("/api/photos/{photo}", response_class=Response, responses=picture(404, 422))
    async def photo(
        photo: Annotated[str, Path(pattern="^[0-9a-f]{32}$")], side: Side = LONGEST
    ) -> Response:
        """An uploaded photograph, or an example."""
        return Response(await state.smaller(photo, side), media_type="image/jpeg", headers=KEEP)

    @app.get(
        "/api/entries/{n}", response_class=Response, responses=picture(404, 410, 422, 500, 503, 504)
    )
    async def entry(
        request: Request, n: Annotated[str, Path(pattern="^[0-9]{1,19}$")], side: Side = 320
    ) -> Response:
        """An image of the index."""
        found = await _while_there(request, state.desk.ask(Picture(int(n), side)))
        return Response(
            found, media_type="image/jpeg", headers={"cache-control": "private, max-age=600"}
        )

    @app.post("/api/entries/{n}", status_code=201, response_model=shapes.Uploaded,
              responses=failures(403, 404, 410, 422, 500, 503, 504))  # fmt: skip
    async def adopt(request: Request, n: Annotated[str, Path(pattern="^[0-9]{1,19}$")]) -> Any:
        """Take an image of the index along as a photograph, as if its file had been uploaded."""
        found = await _while_there(request, state.desk.ask(Adopt(int(n))))
        state.photos.put(found["digest"], found["photo"])
        return {
            "photo": found["digest"],
            "width": found["photo"].width,
            "height": found["photo"].height,
        }


def _questions(app: FastAPI, state: State) -> None:
    async def answered(request: Request, question: Question) -> Response:
        return Response(await _while_there(request, state.desk.ask(question)), media_type=JSON)

    @app.get("/api/look", response_model=shapes.Look, responses=failures(404, 422, 500, 503, 504))
    async def look(
        request: Request,
        photo: Digest,
        model: Text,
        map: Annotated[Maps, Query(description="which map is looked at")] = "auto",
        threshold: Annotated[
            float | None, Query(ge=0, lt=1, description="of the map; else the model's own")
        ] = None,
    ) -> Any:
        """Where a model looks in a photograph: class, map, and a box at a threshold."""
        return await answered(
            request, Look(photo, model, map, threshold, state.photo(photo).content)
        )

    @app.get(
        "/api/search", response_model=shapes.Search, responses=failures(404, 422, 500, 503, 504)
    )
    async def search(
        request: Request,
        photo: Digest | None = None,
        entry: Number | None = None,
        text: Annotated[
            list[Text], Query(max_length=8, description='what is wanted; "dog^2" counts twice')
        ] = [],  # noqa: B006
        without: Annotated[
            list[Text], Query(alias="not", max_length=8, description="what is not")
        ] = [],  # noqa: B006
        weight: Annotated[
            float | None, Query(ge=0, le=1, description="of the text, beside an image")
        ] = None,
        method: Annotated[
            str, Query(max_length=100, description="auto, or one that /api/about names")
        ] = "auto",
        top: Annotated[int, Query(ge=1, le=200)] = 24,
        class_: Annotated[list[Text], Query(alias="class", max_length=50)] = [],  # noqa: B006
        domain: Annotated[list[Text], Query(max_length=50)] = [],  # noqa: B006
    ) -> Any:
        """Images found by image, by text, or by both."""
        if photo is not None and entry is not None:
            raise Refusal(400, "a search is from one image: give photo or entry, not both")
        if sum(map(len, (*class_, *domain))) > FILTERS:
            raise Refusal(
                400, f"the classes and domains are longer than {FILTERS} characters: choose fewer"
            )
        content = None if photo is None else state.photo(photo).content
        question = Search(
            photo, None if entry is None else int(entry), tuple(text), tuple(without), weight, method, top,
            tuple(class_), tuple(domain), content,
        )  # fmt: skip
        return await answered(request, question)


def _digest(content: bytes) -> str:
    """As cenote.predict.feature_cache, and so an index, has it."""
    return blake2b(content, digest_size=16).hexdigest()


async def _while_there(request: Request, answer: Awaitable[Any]) -> Any:
    """A client that goes away takes its question with it, unless it is being answered already."""

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    asking, leaving = asyncio.ensure_future(answer), asyncio.ensure_future(left())
    try:
        await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            raise Refusal(499, "the client has gone")
        return asking.result()
    finally:
        asking.cancel()
        leaving.cancel()
