"""Search by image, by text or by both: GET /api/search, and images of the index, /api/entries."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field
from starlette.exceptions import HTTPException

from ..photos import Photo, encode_jpeg
from ..schemas import JPEG, EntryId, PhotoInfo, Schema
from ..service import Service, WorkerRequest
from ..state import State
from .photos import PhotoDigest, Side

if TYPE_CHECKING:
    from ...search.query import SearchAnswer
    from ...search.store import ImageEntry
    from ..index import ServedIndex

MAX_FILTER_LENGTH = 4000  # characters of all classes and domains
Row = Annotated[int, Field(ge=0, lt=2**63, description="row of an image in the index")]
Text = Annotated[str, Field(min_length=1, max_length=500)]

router = APIRouter()


class SearchResult(Schema):
    entry: EntryId
    score: float
    name: str
    label: str | None
    domain: str | None
    caption: str | None
    width: int
    height: int
    missing: bool
    duplicates: int


class SearchResponse(Schema):
    method: str
    relevant: int
    searched: int
    exact: bool
    results: list[SearchResult]
    why: dict[str, Any]
    seconds: float


class ImageSearchRequest(WorkerRequest):
    photo: PhotoDigest | None = None
    entry: Row | None = None
    text: tuple[Text, ...] = Field(
        (), max_length=8, description='what to find; "dog^2" has twice the weight'
    )
    without: tuple[Text, ...] = Field((), alias="not", max_length=8, description="what to exclude")
    weight: float | None = Field(None, ge=0, le=1, description="of the text, beside an image")
    method: str = Field("auto", max_length=100, description="auto, or a method of /api/about")
    top: int = Field(24, ge=1, le=200)
    classes: tuple[Text, ...] = Field((), alias="class", max_length=50)
    domain: tuple[Text, ...] = Field((), max_length=50)

    def run(self, service: Service, content: bytes | None) -> bytes:
        from ...search.filters import Filter
        from ...search.query import SearchRequest, choose_method

        start = time.perf_counter()
        image = service.index.image_of(self.photo, self.entry, content)
        _refuse_slow(self.method)
        spec = choose_method(self.method, self.weight)
        request = SearchRequest(
            () if image is None else (image,),
            self.text,
            self.without,
            spec.method,
            self.top,
            filter=Filter(self.classes, self.domain),
            options=spec.options,
        )
        answer = service.index.searcher.ask(request)
        return _response(answer, service.index, start).to_json()


class PictureRequest(WorkerRequest):
    """Encode an image of the index as a JPEG. A page of results requests dozens of them."""

    queue_share = 16
    max_batch = 8
    entry: Row
    side: int

    def run(self, service: Service, content: bytes | None) -> bytes:
        (entry,) = service.index.entries([self.entry])
        image = service.index.image(entry)
        image.thumbnail((self.side, self.side))
        return encode_jpeg(image)


class EntryPhotoRequest(WorkerRequest):
    """Read an image of the index as if it had been uploaded."""

    queue_share = 1 / 8  # files are large
    entry: Row

    def run(self, service: Service, content: bytes | None) -> Photo:
        (entry,) = service.index.entries([self.entry])
        return service.index.photo(entry)


@router.get("/api/search", response_model=SearchResponse)
async def search(
    request: Request, state: State, query: Annotated[ImageSearchRequest, Query()]
) -> Response:
    """Find images by image, by text, or by both."""
    if query.photo is not None and query.entry is not None:
        raise HTTPException(400, "a search takes one image: give photo or entry, not both")
    if sum(map(len, query.classes + query.domain)) > MAX_FILTER_LENGTH:
        message = f"the filters are longer than {MAX_FILTER_LENGTH} characters: choose fewer"
        raise HTTPException(400, message)
    content = None if query.photo is None else state.photos.get(query.photo).content
    answer = await state.answer(request, query, content)
    return Response(answer, media_type="application/json")


@router.get("/api/entries/{n}", response_class=Response, responses=JPEG)
async def get_entry(
    request: Request, state: State, n: Annotated[Row, Path()], side: Side = 320
) -> Response:
    """Return an image of the index."""
    content = await state.answer(request, PictureRequest(entry=n, side=side))
    headers = {"cache-control": "private, max-age=600"}
    return Response(content, media_type="image/jpeg", headers=headers)


@router.post("/api/entries/{n}", status_code=201)
async def use_entry_as_photo(
    request: Request, state: State, n: Annotated[Row, Path()]
) -> PhotoInfo:
    """Use an image of the index as a photograph, as if its file had been uploaded."""
    photo: Photo = await state.answer(request, EntryPhotoRequest(entry=n))
    state.photos.put(photo)
    return photo.info()


def _refuse_slow(method: str) -> None:
    """Refuse what would block the only worker: training a mapping, or unlimited options."""
    from ...search.methods import METHODS

    name, options, _ = method.partition(":")
    if options:
        message = "options of a method, except for weight, work with `cenote search` only"
        raise HTTPException(400, message)
    if name in METHODS and METHODS[name].pseudo_words:
        message = f"'{name}' takes too long for a page: use `cenote search --method {name}`"
        raise HTTPException(400, message)


def _response(answer: SearchAnswer, index: ServedIndex, start: float) -> SearchResponse:
    from ..index import entry_id

    if not all(math.isfinite(result.score) for result in answer.results):
        raise ValueError("the scores are NaN or infinite: use other weights, or another method")
    hidden = ("images", "proxies", "method")
    why = {name: value for name, value in answer.why.items() if name not in hidden}
    if answer.proxies:
        proxies = zip(answer.proxies, index.entries(answer.proxies), strict=True)
        why["proxies"] = [
            {"entry": entry_id(row), "name": os.path.basename(entry.path)} for row, entry in proxies
        ]
    results = [
        SearchResult(
            entry=entry_id(result.row),
            score=round(result.score, 6),
            missing=result.missing,
            duplicates=len(result.duplicates),
            **_describe(result.entry),
        )
        for result in answer.results
    ]
    return SearchResponse(
        method=answer.method,
        relevant=answer.relevant,
        searched=answer.searched,
        exact=answer.exact,
        results=results,
        why=why,
        seconds=round(time.perf_counter() - start, 4),
    )


def _describe(entry: ImageEntry) -> dict[str, Any]:
    """Return what clients may know of an entry: of its path only the name."""
    name = entry.path.replace(":", "/").rpartition("/")[2]
    names = ("label", "domain", "caption", "width", "height")
    return {"name": name, **{field: getattr(entry, field) for field in names}}
