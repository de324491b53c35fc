"""Saved searches of an index: searches.json in its folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from ..data.digests import digest_of
from ..data.files import write_text
from .map import Point
from .query import ImageInput, SearchRequest
from .store import Filter, Store

FILE = "searches.json"
MAX_SEARCHES, MAX_NAME = 200, 80  # the page saves searches, too
IMAGES = ("images", "like", "unlike")
LOCK_SECONDS = 10


def make_request(
    options: Mapping[str, Any], filter: Filter, saved: SearchRequest | None = None
) -> SearchRequest:
    """Return a request of the options that are given; None and () leave the saved one's value."""
    values = {name: value for name, value in options.items() if value not in (None, ())}
    if saved is None:
        return SearchRequest(**values, filter=filter)
    bounds = {name: value for name, value in vars(filter).items() if value not in (None, ())}
    return replace(saved, **values, filter=replace(saved.filter, **bounds))


class SavedSearches:
    """Requests by name. Images are stored by path and digest: those of the index may be moved."""

    def __init__(self, store: Store) -> None:
        folder = store.folder_of(store.where)
        if folder is None:
            raise ValueError(
                f"searches are saved in the folder of an index, and {store.where} is not a folder"
            )
        self.store, self.path = store, folder / FILE

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the stored fields of all searches, by name."""
        if not self.path.exists():
            return {}
        try:
            searches = json.loads(self.path.read_text("utf-8"))
            if all(isinstance(stored, dict) for stored in searches.values()):
                return dict(searches)
        except (ValueError, AttributeError, RecursionError):
            pass
        raise self._damaged()

    def load(self, name: str) -> SearchRequest:
        """Return the request that was saved as `name`."""
        searches = self.read()
        if name not in searches:
            names = ", ".join(searches) or "there are none, --save NAME saves one"
            raise ValueError(f"no saved search '{name}' in {self.store.where}: {names}")
        return self.request(searches[name])

    def request(self, stored: Mapping[str, Any]) -> SearchRequest:
        """Return the request of stored fields."""
        values = dict(stored)
        try:
            for key in IMAGES:
                images = values.get(key, ())
                values[key] = tuple(self._find(item["path"], item["digest"]) for item in images)
            for key in ("texts", "without"):
                values[key] = tuple(values.get(key, ()))
            bounds: dict[str, Any] = dict(values.get("filter", {}))
            for key, value in bounds.items():
                if isinstance(value, list):
                    bounds[key] = tuple(value)
            values["filter"] = Filter(**bounds)
            values["region"] = self._points(values.get("region", ()))
            return SearchRequest(**values)
        except (TypeError, KeyError, AttributeError):
            raise self._damaged() from None

    def save(self, name: str, request: SearchRequest) -> None:
        """Store a request; one of the same name is replaced."""
        name = name.strip()
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise ValueError(f"a search needs a name of 1 to {MAX_NAME} characters, got '{name}'")
        stored = self._stored(request)
        with self._change() as searches:
            if name not in searches and len(searches) >= MAX_SEARCHES:
                raise ValueError(f"{self.path.name} has {MAX_SEARCHES} searches: delete one")
            searches[name] = stored

    def delete(self, name: str) -> None:
        """Delete a search, if it exists."""
        with self._change() as searches:
            searches.pop(name, None)

    @contextmanager
    def _change(self) -> Iterator[dict[str, dict[str, Any]]]:
        """Yield the searches, and write them; other processes wait."""
        try:
            with FileLock(self.path.with_suffix(".lock"), timeout=LOCK_SECONDS):
                searches = self.read()
                yield searches
                write_text(self.path, json.dumps(searches, indent=2) + "\n")
        except OSError as error:
            raise ValueError(f"{self.path} cannot be written: {error}") from None

    def _stored(self, request: SearchRequest) -> dict[str, Any]:
        """Return the fields that are not the defaults, as JSON."""
        defaults, values = SearchRequest(texts=("x",)), dict[str, Any]()
        for item in fields(request):
            value = getattr(request, item.name)
            if item.name in IMAGES:
                value = [self._image(image) for image in value]
            elif item.name == "filter":
                value = {
                    key: bound for key, bound in asdict(value).items() if bound not in (None, ())
                }
            elif item.name not in ("texts", "without") and value == getattr(defaults, item.name):
                continue
            if value not in ((), [], {}):
                values[item.name] = value
        return values

    def _image(self, image: ImageInput) -> dict[str, str]:
        if isinstance(image, bytes):
            raise ValueError(
                "an uploaded photograph is not stored: save a search by text or by images of "
                "the index"
            )
        if isinstance(image, int):
            (entry,) = self.store.entries(torch.tensor([image]))
            return {"path": entry.path, "digest": entry.digest}
        path = Path(image).absolute()
        return {"path": str(path), "digest": digest_of(path.read_bytes()).hex()}

    def _find(self, path: str, digest: str) -> ImageInput:
        """Return the row of the index with these contents, or the file."""
        return next(iter(self.store.rows_with_digest(digest)), path)

    def _points(self, region: Iterable[Iterable[float]]) -> tuple[Point, ...]:
        try:
            return tuple((float(x), float(y)) for x, y in region)
        except ValueError:
            raise self._damaged() from None

    def _damaged(self) -> ValueError:
        return ValueError(f"{self.path} is not a list of saved searches: repair or delete it")
