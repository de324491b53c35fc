"""Messages that clients, the server and the worker process exchange."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field

MAX_PHOTOS = 48  # whose features a worker caches
EntryId = int | str  # row number in the index; a string where JavaScript's numbers are too small


class Schema(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorResponse(Schema):
    detail: str = Field(description="one sentence: what was wrong, and what to do")


class ModelInfo(Schema):
    id: str
    name: str
    pool: str
    backbone: str
    classes: int
    maps: list[str] = Field(description="kinds of maps that it has, its own best one first")
    accuracy: float | None = Field(description="percent of the images of `evaluated_on`")
    evaluated_on: str = Field(description="for instance '60 test images'")
    recommended: bool


class MethodInfo(Schema):
    name: str
    about: str
    image: bool
    text: bool


class ExampleQuery(Schema):
    """An image and a text to search for together."""

    entry: EntryId
    text: str


class IndexInfo(Schema):
    images: int
    model: str
    methods: list[MethodInfo]
    classes: list[str]
    domains: list[str]
    entries: list[EntryId] = Field(description="some images to start with")
    suggestions: list[str] = Field(description="texts that find images, the best first")
    example: ExampleQuery | None


class PhotoInfo(Schema):
    photo: str
    width: int
    height: int


class Photo(NamedTuple):
    """A photograph in memory.

    Models get the file. Clients never do, because it may contain where the photograph was taken.
    """

    digest: str  # of the file
    content: bytes  # the file; empty in the worker's answer to an upload, where the server has it
    width: int  # after the EXIF rotation
    height: int
    shown: bytes  # a JPEG of at most MAX_SIDE pixels, without metadata
    name: str = ""

    def info(self) -> PhotoInfo:
        return PhotoInfo(photo=self.digest, width=self.width, height=self.height)


class Contents(Schema):
    models: list[ModelInfo]
    index: IndexInfo | None


class Startup(NamedTuple):
    """What the worker reports when it is ready."""

    contents: Contents
    examples: dict[str, Photo]  # by digest


class WorkerService(Protocol):
    """What requests use of the worker's `Service`, without its imports: the server has no torch."""

    models: Any

    @property
    def index(self) -> Any: ...

    def startup(self) -> Startup: ...

    def contents(self) -> Contents: ...

    def answer(self, request: WorkerRequest, content: bytes) -> Any: ...


class FileNeeded(Exception):
    """The features of a photograph are not cached, and its file was not sent."""


class WorkerRequest(BaseModel):
    """A request that the worker answers; `content` is the file of the photograph that it names.

    It is empty if the worker may have the features in memory: `run` raises FileNeeded otherwise.

    Equal requests have equal answers, and an answer of bytes is cached.
    """

    model_config = ConfigDict(frozen=True)
    queue_share: ClassVar[float] = 1  # of the queue's limit, for requests of this class

    @property
    def photo_digest(self) -> str | None:
        """Return the photograph whose features the worker keeps."""
        return None

    @abstractmethod
    def run(self, service: WorkerService, content: bytes) -> Any: ...


class ContentsRequest(WorkerRequest):
    def run(self, service: WorkerService, content: bytes) -> Contents:
        return service.contents()


Responses = dict[int | str, dict[str, Any]]  # as FastAPI documents them, by status
ERRORS: Responses = {"4XX": {"model": ErrorResponse}, "5XX": {"model": ErrorResponse}}
JPEG: Responses = {
    200: {
        "description": "a JPEG",
        "content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}},
    }
}
