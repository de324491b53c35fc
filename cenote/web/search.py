"""Search by image, by text or by both: GET /api/search; the images of the index, /api/entries,
and their positions on a map, /api/map.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError
from starlette.exceptions import HTTPException

from .photos import PhotoDigest, Side, encode_jpeg
from .schemas import (
    JPEG,
    EntryId,
    Photo,
    PhotoInfo,
    Responses,
    Schema,
    WorkerRequest,
    WorkerService,
)
from .state import ServerState, State

MAX_FILTER_LENGTH = 4000  # characters of all classes and domains
MAX_EXAMPLES = 50  # liked images, and disliked ones
MAX_CORNERS = 64  # of a region
NUMBER = r"(0(\.[0-9]{1,4})?|1(\.0{1,4})?)"  # the map's positions have 4 decimals, too
POINT = f"^{NUMBER},{NUMBER}$"
CSV_COLUMNS = (
    "rank",
    "name",
    "score",
    "visual",
    "doubtful",
    "label",
    "domain",
    "caption",
    "width",
    "height",
)
CSV_HEADERS = {"content-disposition": 'attachment; filename="results.csv"'}
CSV: Responses = {
    200: {"description": "a table", "content": {"text/csv": {"schema": {"type": "string"}}}}
}
Row = Annotated[int, Field(ge=0, lt=2**63, description="row of an image in the index")]
SearchName = Annotated[str, Field(min_length=1, max_length=80)]
Text = Annotated[str, Field(min_length=1, max_length=500)]


def parse_point(text: str) -> tuple[float, float]:
    """Parse "0.25,0.5"."""
    if not re.fullmatch(POINT, text):
        message = "a point is two numbers from 0 to 1 with at most 4 decimals, such as 0.25,0.5"
        raise PydanticCustomError("point", message)
    x, y = text.split(",")
    return float(x), float(y)


MapPoint = Annotated[
    tuple[float, float],
    BeforeValidator(parse_point),
    WithJsonSchema({"type": "string", "pattern": POINT}),
]

router = APIRouter()


class MatchingText(Schema):
    field: str
    text: str


class SearchResult(Schema):
    entry: EntryId
    score: float
    visual: float = Field(description="score by what the image looks like")
    matches: list[MatchingText] = Field(description="texts of the image that match the query")
    doubtful: bool = Field(description="it may not show what the text says, and no text matches")
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
    notes: list[str] = Field(description="what the model does not know about the query")
    why: dict[str, Any]
    seconds: float


class MapResponse(Schema):
    """Positions of images of the index, from 0 to 1, x to the right and y down."""

    entries: list[EntryId]
    x: list[float]
    y: list[float]
    labels: list[int] = Field(description="places in `classes`")
    classes: list[str] = Field(description="names of classes, or of folders")
    images: int = Field(description="in the index; at most 5,000 of them are on the map")
    variance: float = Field(description="share of the variance of the vectors that is visible")


class MapRequest(WorkerRequest):
    def run(self, service: WorkerService, content: bytes) -> Any:
        return service.index.map.model_dump_json().encode()


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
    like: tuple[Row, ...] = Field((), max_length=MAX_EXAMPLES, description="more like these images")
    unlike: tuple[Row, ...] = Field((), max_length=MAX_EXAMPLES, description="not like these")
    region: tuple[MapPoint, ...] = Field(
        (),
        max_length=MAX_CORNERS,
        description="corners of a polygon on /api/map: only images inside it, by the even-odd rule",
    )

    def run(self, service: WorkerService, content: bytes) -> Any:
        return service.index.search(self, content).model_dump_json().encode()


class SearchTableRequest(ImageSearchRequest):
    """Search, and return the results as a CSV file."""

    def run(self, service: WorkerService, content: bytes) -> Any:
        from ..search.export import csv_text  # imports torch, which the server does not need

        results = service.index.search(self, content).results
        rows = [{"rank": rank, **dict(result)} for rank, result in enumerate(results, 1)]
        return csv_text(rows, CSV_COLUMNS).encode(errors="replace")


class SavedSearch(Schema):
    name: str
    query: dict[str, Any] | None = Field(
        description="parameters of /api/search; null if only `cenote search --saved` can run it"
    )


class SavedSearchesResponse(Schema):
    searches: list[SavedSearch]
    can_save: bool = Field(description="whether the index is in a folder")


class SavedSearchesRequest(WorkerRequest):
    """List the saved searches, after one was saved or deleted."""

    delete: str | None = None
    save: str | None = None
    query: ImageSearchRequest | None = None

    def run(self, service: WorkerService, content: bytes) -> Any:
        if self.delete is not None:
            service.index.delete_search(self.delete)
        if self.save is not None:
            service.index.save_search(self.save, self.query, content)
        return service.index.saved_searches()


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
    answer = await state.answer(request, query, _content(state, query))
    return Response(answer, media_type="application/json")


@router.get("/api/map", response_model=MapResponse)
async def get_map(request: Request, state: State) -> Response:
    """Return a map of the index: the first two principal components of its vectors."""
    answer = await state.answer(request, MapRequest())
    return Response(answer, media_type="application/json")


@router.get("/api/search.csv", response_class=Response, responses=CSV)
async def search_table(
    request: Request, state: State, query: Annotated[SearchTableRequest, Query()]
) -> Response:
    """Return the results of a search as a CSV file."""
    answer = await state.answer(request, query, _content(state, query))
    return Response(answer, media_type="text/csv; charset=utf-8", headers=CSV_HEADERS)


def _content(state: ServerState, query: ImageSearchRequest) -> bytes:
    """Return the file of the photograph; raise for a query that cannot be answered."""
    if query.photo is not None and query.entry is not None:
        raise HTTPException(400, "a search takes one image: give photo or entry, not both")
    if sum(map(len, query.classes + query.domain)) > MAX_FILTER_LENGTH:
        message = f"the filters are longer than {MAX_FILTER_LENGTH} characters: choose fewer"
        raise HTTPException(400, message)
    return b"" if query.photo is None else state.photos[query.photo].content


@router.get("/api/searches")
async def get_searches(request: Request, state: State) -> SavedSearchesResponse:
    """Return the saved searches of the index."""
    answer: SavedSearchesResponse = await state.answer(request, SavedSearchesRequest())
    return answer


@router.put("/api/searches/{name:path}")
async def save_search(
    request: Request,
    state: State,
    name: Annotated[SearchName, Path()],
    query: Annotated[ImageSearchRequest, Query()],
) -> SavedSearchesResponse:
    """Save a search in the folder of the index; one of the same name is replaced."""
    job = SavedSearchesRequest(save=name, query=query)
    answer: SavedSearchesResponse = await state.answer(request, job, _content(state, query))
    return answer


@router.delete("/api/searches/{name:path}")
async def delete_search(
    request: Request, state: State, name: Annotated[SearchName, Path()]
) -> SavedSearchesResponse:
    """Delete a saved search, if it exists."""
    answer: SavedSearchesResponse = await state.answer(request, SavedSearchesRequest(delete=name))
    return answer


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
