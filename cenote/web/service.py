"""The worker's side: the opened models and index, which answer requests."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException

from ..allocator import keep_memory
from ..data import open_dataset
from ..data.synthetic.drawing import World
from ..train.tournament.candidates import candidate_groups
from .index import ServedIndex
from .models import ServedModels
from .photos import encode_photo, file_digest
from .schemas import Contents, Photo, Startup, WorkerRequest
from .sources import Sources, strip_directories

MAX_EXAMPLES = 8

logger = logging.getLogger(__name__)


class Service:
    """The served models and index, opened."""

    def __init__(self, sources: Sources) -> None:
        keep_memory()
        self.world, self.models = sources.world, ServedModels(sources)
        self._index = None if sources.index is None else ServedIndex(sources.index)

    @property
    def index(self) -> ServedIndex:
        if self._index is None:
            raise HTTPException(404, "no index is served: use `cenote serve RUN --index INDEX`")
        return self._index

    def startup(self) -> Startup:
        examples = example_photos(self.world, self._index)
        return Startup(self.contents(), examples, candidate_groups())

    def contents(self) -> Contents:
        """List what is served; models that a running tournament has trained since are added."""
        self.models.refresh()
        index = None if self._index is None else self._index.info()
        return Contents(models=self.models.rows, index=index)

    def answer(self, request: WorkerRequest, content: bytes) -> Any:
        """Answer a request; every failure is an HTTPException."""
        try:
            return request.run(self, content)
        except HTTPException:
            raise
        except Exception as error:
            is_bug = isinstance(error, ValidationError)  # a response that does not fit its schema
            if isinstance(error, ValueError | ImportError) and not is_bug:
                raise HTTPException(400, strip_directories(str(error))) from None
            logger.exception("A request failed")
            message = f"this request failed ({type(error).__name__}): see the server's log"
            raise HTTPException(500, message) from None


def example_photos(world: Path | None, index: ServedIndex | None) -> dict[str, Photo]:
    """Take test images of a demo, else images of the index, else draw two; by digest."""
    photos = []
    if world is not None:
        photos = _test_photos(world)
    elif index is not None:
        photos = index.photos(MAX_EXAMPLES)
    return {photo.digest: photo for photo in photos or _drawn_photos()}


def _test_photos(world: Path) -> list[Photo]:
    dataset, photos = open_dataset(world, "test"), []
    for i in range(0, len(dataset), len(dataset) // MAX_EXAMPLES or 1):
        content, label = dataset.path(i).read_bytes(), dataset[i].label or ""
        photos.append(encode_photo(dataset.image(i), content, file_digest(content), label))
    return photos[:MAX_EXAMPLES]


def _drawn_photos() -> list[Photo]:
    world, photos = World.preset("tiny", size=256), []
    for i in (1, 2):
        example = world.draw(i)
        photo = encode_photo(example.image, None, "", example.record.label or "")
        photos.append(photo._replace(digest=file_digest(photo.content)))
    return photos
