"""The worker's side: the opened models and index, which answer requests."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from ..allocator import keep_memory
from ..data import open_dataset, read_image
from ..data.images import RAW
from ..data.video import is_video_name
from ..models.image_text import ImageText
from ..predict.openvino_engine import one_thread
from ..search.index import EntryImages
from ..search.map import MAP_IMAGES
from ..search.methods import DESCRIPTIONS, METHODS
from ..search.query import ImageInput, Searcher, SearchRequest, choose_method
from ..search.saved import SavedSearches
from ..search.store import Filter, ImageEntry
from .models import ServedModels
from .photos import MAX_SIDE, encode_photo, file_digest
from .schemas import (
    Contents,
    EntryId,
    ExampleQuery,
    FileNeeded,
    IndexInfo,
    MethodInfo,
    Photo,
    Startup,
    WorkerRequest,
)
from .search import (
    MAX_CORNERS,
    ImageSearchRequest,
    MapResponse,
    MatchingText,
    SavedSearch,
    SavedSearchesResponse,
    SearchResponse,
    SearchResult,
)
from .sources import Sources, strip_directories
from .suggestions import class_of, spread_over_classes, suggest

MAX_EXAMPLES = 8
EXAMPLES = Path(__file__).with_name("examples")
SAFE_INTEGER = 2**53  # larger numbers, which Milvus has, lose digits in JavaScript
MAX_STARTING_ENTRIES = 24
MAX_NAMES = 400  # of classes, and of domains

logger = logging.getLogger(__name__)


class Service:
    """The served models and index, opened."""

    def __init__(self, sources: Sources) -> None:
        keep_memory()
        self.sources, self.world, self.models = sources, sources.world, ServedModels(sources)
        self._index: ServedIndex | None = None
        if sources.index is not None:
            with sources.leave_out(sources.index):
                self._index = ServedIndex(sources.index)
        self.index_version = sources.index_version()

    @property
    def index(self) -> ServedIndex:
        if self._index is None:
            raise HTTPException(404, "no index is served: use `cenote serve RUN --index INDEX`")
        return self._index

    def startup(self) -> Startup:
        examples = example_photos(self.world, self._index, self.models.class_names())
        return Startup(self.contents(), examples)

    def contents(self) -> Contents:
        """List what is served: with models that were trained since, and the present index."""
        with suppress(ValueError, OSError):  # a tournament may have been removed
            self.models.refresh()
        version = self.sources.index_version()
        if self.sources.index is not None and version != self.index_version:
            try:
                self._index = ServedIndex(self.sources.index, self._index)
                self.index_version = version
            except (ValueError, OSError) as error:  # removed, or half a new one: as it was
                logger.warning("%s cannot be read again: %s", self.sources.index, error)
        index = None if self._index is None else self._index.info()
        return Contents(models=self.models.rows, index=index)

    def answer(self, request: WorkerRequest, content: bytes) -> Any:
        """Answer a request; every failure is an HTTPException, or a file that was not sent."""
        try:
            with one_thread():
                return request.run(self, content)
        except (HTTPException, FileNeeded):
            raise
        except Exception as error:
            is_bug = isinstance(error, ValidationError)  # a response that does not fit its schema
            if isinstance(error, ValueError | ImportError) and not is_bug:
                raise HTTPException(400, strip_directories(str(error))) from None
            logger.exception("A request failed")
            message = f"this request failed ({type(error).__name__}): see the server's log"
            raise HTTPException(500, message) from None


def example_photos(
    world: Path | None, index: ServedIndex | None, classes: Collection[str] = ()
) -> dict[str, Photo]:
    """Take images of the index, or two photographs, and then the test images of a demo.

    Those of the index are of the models' classes, if it has such images.
    """
    photos = []
    if index is not None and world is None:
        photos = index.photos(MAX_EXAMPLES, classes)
    if not photos:
        photos = [_photo(EXAMPLES / f"{name}.jpg", name) for name in ("coffee", "cat")]
    if world is not None:
        with suppress(ValueError, OSError):  # its images may have been removed
            photos += _test_photos(world)
    return {photo.digest: photo for photo in photos[:MAX_EXAMPLES]}


def _photo(path: Path, name: str) -> Photo:
    content = path.read_bytes()
    return encode_photo(read_image(path), content, file_digest(content), name)


def _test_photos(world: Path) -> list[Photo]:
    dataset, photos = open_dataset(world, "test"), []
    for i in range(0, len(dataset), len(dataset) // MAX_EXAMPLES or 1):
        photos.append(_photo(dataset.path(i), dataset[i].label or ""))
    return photos


class ServedIndex:
    """An index and its model. The word list is opened when a search needs it."""

    def __init__(self, address: str, before: ServedIndex | None = None) -> None:
        """Take over the model of the index `before` if it is still the same."""
        self.searcher = Searcher.open(address)
        self.store = self.searcher.store
        if before is not None and before.store.description == self.store.description:
            model = before.model  # not `before`, which would live as long as this index
            self.searcher.load = lambda: model
        self.model: ImageText = self.searcher.model  # loaded now, not with the first request
        self.images = EntryImages()
        self.sample = self.store.sample(MAP_IMAGES)  # that of the map
        self.starting_entries = spread_over_classes(self.sample, MAX_STARTING_ENTRIES)
        self.suggestions = suggest(self.searcher, self.sample)

    def info(self) -> IndexInfo:
        classes = {entry.label for _, entry in self.sample if entry.label}
        domains = {entry.domain for _, entry in self.sample if entry.domain}
        words, example = self.suggestions
        example_query = None
        if example is not None:
            example_query = ExampleQuery(entry=entry_id(example[0]), text=example[1])
        return IndexInfo(
            images=len(self.store),
            model=os.path.basename(self.store.description.model),
            methods=[
                MethodInfo(
                    name=name, about=DESCRIPTIONS[name], image=method.image, text=method.text
                )
                for name, method in METHODS.items()
                if not (method.pseudo_words or method.evaluation)
            ],
            classes=sorted(classes)[:MAX_NAMES],
            domains=sorted(domains)[:MAX_NAMES],
            entries=[entry_id(row) for row, _ in self.starting_entries],
            suggestions=words,
            example=example_query,
        )

    def request(self, request: ImageSearchRequest, content: bytes) -> SearchRequest:
        """Return the search of a client's request."""
        images: tuple[ImageInput, ...] = ()
        if request.entry is not None:
            self.entries([request.entry])
            images = (request.entry,)
        elif request.photo is not None:  # its content may be a PNG of the file's pixels
            images = (next(iter(self.store.rows_with_digest(request.photo)), content),)
        if examples := request.like + request.unlike:
            self.entries(examples)
        _refuse_slow(request.method)
        method = choose_method(request.method, request.weight)
        return SearchRequest(
            images,
            request.text,
            request.without,
            method.method,
            request.top,
            filter=Filter(request.classes, request.domain),
            options=method.options,
            like=request.like,
            unlike=request.unlike,
            region=request.region,
        )

    @property
    def map(self) -> MapResponse:
        index_map = self.searcher.map
        names = [class_of(image) for image in index_map.sample]
        classes = {name: place for place, name in enumerate(sorted(set(names)))}
        x, y = index_map.points.T.tolist()
        return MapResponse(
            entries=[entry_id(row) for row, _ in index_map.sample],
            x=x,
            y=y,
            labels=[classes[name] for name in names],
            classes=list(classes),
            images=len(self.store),
            variance=round(index_map.variance, 4),
        )

    def search(self, request: ImageSearchRequest, content: bytes) -> SearchResponse:
        start = time.perf_counter()
        answer = self.searcher.ask(self.request(request, content))
        if not all(math.isfinite(result.score) for result in answer.results):
            raise ValueError("the scores are NaN or infinite: use other weights, or another method")
        hidden = ("images", "proxies", "method")
        why = {name: value for name, value in answer.why.items() if name not in hidden}
        if answer.proxies:
            proxies = zip(answer.proxies, self.entries(answer.proxies), strict=True)
            why["proxies"] = [
                {"entry": entry_id(row), "name": file_name(entry)} for row, entry in proxies
            ]
        return SearchResponse(
            method=answer.method,
            relevant=answer.relevant,
            searched=answer.searched,
            exact=answer.exact,
            results=[
                SearchResult(
                    entry=entry_id(result.row),
                    score=round(result.score, 6),
                    visual=round(result.visual, 6),
                    matches=[MatchingText(**match._asdict()) for match in result.matches],
                    doubtful=result.doubtful,
                    missing=result.missing,
                    duplicates=len(result.duplicates),
                    name=file_name(result.entry),
                    label=result.entry.label,
                    domain=result.entry.domain,
                    caption=result.entry.caption,
                    width=result.entry.width,
                    height=result.entry.height,
                )
                for result in answer.results
            ],
            notes=answer.notes,
            why=why,
            seconds=round(time.perf_counter() - start, 4),
        )

    def saved_searches(self) -> SavedSearchesResponse:
        if self.store.folder_of(self.store.where) is None:
            return SavedSearchesResponse(searches=[], can_save=False)
        saved = SavedSearches(self.store)
        searches = [
            SavedSearch(name=name, query=page_query(saved.request(stored)))
            for name, stored in saved.read().items()
        ]
        return SavedSearchesResponse(searches=searches, can_save=True)

    def save_search(self, name: str, request: ImageSearchRequest, content: bytes) -> None:
        SavedSearches(self.store).save(name, self.request(request, content))

    def delete_search(self, name: str) -> None:
        SavedSearches(self.store).delete(name)

    def entries(self, rows: Sequence[int]) -> list[ImageEntry]:
        try:
            return self.store.entries(torch.tensor(rows))
        except (KeyError, ValueError):
            raise HTTPException(404, "the index does not contain this image") from None

    def image(self, entry: ImageEntry, min_side: int) -> Image.Image:
        image = self.images(entry, min_side)
        if image is None:
            raise HTTPException(410, f"{file_name(entry)} was removed, or cannot be read any more")
        return image

    def photo(self, entry: ImageEntry) -> Photo:
        """Return an image as if it had been uploaded.

        Its digest is not the index's if the file has changed since.
        """
        image, path = self.image(entry, MAX_SIDE), Path(entry.path)
        content, digest = None, entry.digest
        has_decoder = path.suffix.lower() in RAW or is_video_name(path)
        if entry.time > 0 and not has_decoder:
            content = path.read_bytes()
            digest = file_digest(content)
        return encode_photo(image, content, digest, entry.label or "")

    def photos(self, count: int, classes: Collection[str]) -> list[Photo]:
        """Return images of these classes, or of all; without those whose file was removed."""
        photos = dict[int, Photo]()
        for size in (count, 4 * count):  # more if files were removed
            for row, entry in spread_over_classes(self.sample, size, classes):
                if len(photos) < count and row not in photos:
                    with suppress(HTTPException):
                        photos[row] = self.photo(entry)
        return list(photos.values())


def page_query(request: SearchRequest) -> dict[str, Any] | None:
    """Return the parameters of the page's form; None if the request has others."""
    images = (*request.images, *request.like, *request.unlike)
    chosen = request.filter.classes, request.filter.domains
    groups = (request.images, request.texts, request.without, *chosen)
    page = SearchRequest(
        request.images,
        request.texts,
        request.without,
        request.method,
        request.top,
        filter=Filter(*chosen),
        options=request.options,
        like=request.like,
        unlike=request.unlike,
        region=request.region,
    )
    if (
        request != page
        or len(_entry_ids(images)) < len(images)
        or any(len(group) > 1 for group in groups)
        or len(request.region) > MAX_CORNERS
        or not set(request.options) <= {"weight"}
    ):
        return None
    return {
        "entry": _entry_ids(request.images),
        "text": request.texts,
        "not": request.without,
        "weight": request.options.get("weight"),
        "method": None if request.method == "auto" else request.method,
        "class": request.filter.classes,
        "domain": request.filter.domains,
        "like": _entry_ids(request.like),
        "unlike": _entry_ids(request.unlike),
        "region": [f"{round(x, 4)},{round(y, 4)}" for x, y in request.region],
    }


def _entry_ids(images: Sequence[ImageInput]) -> list[EntryId]:
    return [entry_id(image) for image in images if isinstance(image, int)]


def _refuse_slow(method: str) -> None:
    """Refuse what would block a worker: training a mapping, or unlimited options."""
    name, options, _ = method.partition(":")
    message = "options of a method, except for weight, work with `cenote search` only"
    if name in METHODS and METHODS[name].pseudo_words:
        message = f"'{name}' takes too long for a page: use `cenote search --method {name}`"
    elif not options:
        return
    raise HTTPException(400, message)


def file_name(entry: ImageEntry) -> str:
    """Return what clients may know of a path, or of SOURCE:NAME."""
    return entry.path.replace(":", "/").rpartition("/")[2]


def entry_id(row: int) -> EntryId:
    return row if row < SAFE_INTEGER else str(row)
