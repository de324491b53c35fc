"""Search by image, by text or by both: GET /api/search, and images of the index, /api/entries."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field
from starlette.exceptions import HTTPException

from .photos import PhotoDigest, Side, encode_jpeg
from .schemas import JPEG, EntryId, Photo, PhotoInfo, Schema, WorkerRequest, WorkerService
from .state import State

MAX_FILTER_LENGTH = 4000  # characters of all classes and domains
Row = Annotated[int, Field(ge=0, lt=2**63, description="row of an image in the index")]
Text = Annotated[str, Field(min_length=1, max_length=500)]

router = APIRouter()


class MatchingText(Schema):
    field: str
    text: str


class SearchResult(Schema):
    entry: EntryId
    score: float
    visual: float = Field(description="score by what the image looks like")
    matches: list[MatchingText] = Field(description="texts of the image that match the query")
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

    def run(self, service: WorkerService, content: bytes) -> Any:
        return service.index.search(self, content).model_dump_json().encode()


class PictureRequest(WorkerRequest):
    """Encode an image of the index as a JPEG. A page of results requests dozens of them."""

    queue_share = 16
    entry: Row
    side: int

    def run(self, service: WorkerService, content: bytes) -> Any:
        (entry,) = service.index.entries([self.entry])
        image = service.index.image(entry, 2 * self.side)
        image.thumbnail((self.side, self.side))
        return encode_jpeg(image)


class EntryPhotoRequest(WorkerRequest):
    """Read an image of the index as if it had been uploaded."""

    queue_share = 1 / 8  # files are large
    entry: Row

    def run(self, service: WorkerService, content: bytes) -> Any:
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
    content = b"" if query.photo is None else state.photos[query.photo].content
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
    state.photos[photo.digest] = photo
    return photo.info()
