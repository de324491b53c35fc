"""The worker's side: requests, and the opened models and index that answer them.

The server imports this module, too: torch is imported when a Service is created.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException

from .photos import Photo, encode_photo, read_photo_file
from .schemas import IndexInfo, ModelInfo, Schema
from .sources import Sources, strip_directories

if TYPE_CHECKING:
    from .index import ServedIndex

MAX_EXAMPLES = 8

logger = logging.getLogger(__name__)


class WorkerRequest(BaseModel):
    """A request that the worker answers. Override `run`, or `run_batch` if batches are faster.

    Equal requests have equal answers: they share one computation, and an answer of bytes is cached.
    `content` is the file of the photograph whose digest is in the request. It is sent only after
    an answer of PhotoRequired, because it may be large.
    """

    model_config = ConfigDict(frozen=True)
    queue_share: ClassVar[float] = 1  # of the queue's limit, for requests of this class
    max_batch: ClassVar[int] = 1

    def run(self, service: Service, content: bytes | None) -> Any:
        raise NotImplementedError

    @classmethod
    def run_batch(cls, batch: Mapping[Self, bytes | None], service: Service) -> list[Any]:
        return [request.run(service, content) for request, content in batch.items()]


class Contents(Schema):
    models: list[ModelInfo]
    index: IndexInfo | None


class Startup(NamedTuple):
    """What the worker reports when it is ready."""

    contents: Contents
    examples: dict[str, Photo]  # by digest
    pool_groups: dict[str, str]


class Service:
    """The served models and index, opened."""

    def __init__(self, sources: Sources) -> None:
        from ..allocator import keep_memory
        from .index import ServedIndex
        from .models import ServedModels

        keep_memory()
        self.sources, self.models = sources, ServedModels(sources)
        self._index = None if sources.index is None else ServedIndex(sources.index)

    @property
    def index(self) -> ServedIndex:
        if self._index is None:
            raise HTTPException(404, "no index is served: use `cenote serve RUN --index INDEX`")
        return self._index

    def startup(self) -> Startup:
        from ..train.tournament.candidates import candidate_groups

        return Startup(
            self.contents(), example_photos(self.sources, self._index), candidate_groups()
        )

    def contents(self) -> Contents:
        """List what is served; models that a running tournament has trained since are added."""
        self.models.refresh()
        index = None if self._index is None else self._index.info()
        return Contents(models=self.models.rows, index=index)

    def answer(self, batch: Mapping[WorkerRequest, bytes | None]) -> list[Any]:
        """Answer requests of one class; a failure is returned as an HTTPException."""
        requests = list(batch)
        try:
            return type(requests[0]).run_batch(batch, self)
        except Exception as error:
            if len(requests) == 1:
                return [_to_http_error(error)]
            return [
                reply for request in requests for reply in self.answer({request: batch[request]})
            ]


def _to_http_error(error: Exception) -> HTTPException:
    if isinstance(error, HTTPException):
        return error
    is_bug = isinstance(error, ValidationError)  # a response that does not fit its schema
    if isinstance(error, ValueError | ImportError) and not is_bug:
        return HTTPException(400, strip_directories(describe_error(error)))
    logger.error("A request failed", exc_info=error)
    return HTTPException(500, f"this request failed ({type(error).__name__}): see the server's log")


def describe_error(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def example_photos(sources: Sources, index: ServedIndex | None) -> dict[str, Photo]:
    """Take photographs from the data of a run, else from the index, else draw two; by digest."""
    photos = list[Photo]()
    for name in _dataset_names(sources):
        with suppress(ValueError, OSError):
            photos = photos or _photos_of_dataset(name)
    if index is not None and not photos:
        for _, entry in index.starting_entries():
            if len(photos) == MAX_EXAMPLES:
                break
            with suppress(HTTPException):  # its file was removed
                photos.append(index.photo(entry))
    return {photo.digest: photo for photo in photos or _drawn_photos()}


def _dataset_names(sources: Sources) -> Iterator[str]:
    """The data of a demo, and synthetic data of tournaments; other data may have moved."""
    yield from map(str, sources.datasets)
    for folder in sources.tournaments:
        with suppress(OSError, ValueError, KeyError, TypeError):
            name = str(json.loads((folder / "results.json").read_text())["data"])
            if name.startswith("world/"):
                yield name


def _photos_of_dataset(name: str) -> list[Photo]:
    from ..data import open_dataset
    from ..data.dataset import images_are_files
    from ..data.digests import digests
    from ..train.tournament.maps import example_photos as select_photos

    dataset = open_dataset(name)
    if "test" in dataset.splits:
        dataset = dataset.split("test")
    dataset = select_photos(dataset, MAX_EXAMPLES)
    photos = []
    for i, digest in enumerate(digests(dataset)):
        if digest is not None:
            content = read_photo_file(dataset.path(i), images_are_files(dataset.pixels))
            label = dataset[i].label or ""
            photos.append(encode_photo(dataset.image(i), content, digest.hex(), label))
    return photos


def _drawn_photos() -> list[Photo]:
    from ..data.digests import digest_of
    from ..data.synthetic.drawing import World

    world, photos = World.preset("tiny", size=256), []
    for i in (1, 2):
        example = world.draw(i)
        photo = encode_photo(example.image, None, "", example.record.label or "")
        photos.append(photo._replace(digest=digest_of(photo.content).hex()))
    return photos
