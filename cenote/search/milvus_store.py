"""An index in Milvus, for more than one machine: the same store, by its address.

One collection holds an entity per image: its vector (FLAT: exact), its words and its entry; the
row is the primary key, 63 bits of the path's digest. A second one, NAME_sums, holds the sums of
the database's first two moments, each number as two floats. Before its first change a writer
replaces them by its mark, and after its last change it stores them again: a writer that was killed
leaves none, and the next reader reads all vectors once. Readers see changes at once; a writer that
finds another's mark instead of its own does not trust its sums any longer.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

import torch
from torch import Tensor

from ..data.digests import digest_of
from ..extras import require
from .database import Moments, MomentSums, check_queries
from .filters import Filter
from .store import ImageEntry, IndexDamaged, IndexDescription, IndexedImage, Store, StoreWriter

COLLECTION = "cenote"  # name of the collection, unless the address has one
PROPERTY = "cenote"  # property of the collection that holds the description
INDEX_TYPES = ("FLAT", "HNSW")
TEXT_LENGTHS = {
    "path": 4096,
    "source": 8192,
    "digest": 64,
    "label": 1024,
    "domain": 1024,
    "split": 256,
    "caption": 16384,
}
NUMBERS = ("size", "time", "width", "height", "look")
MARK_ROW = -1  # row of the sums that identifies the last writer
TIMEOUT = 30.0  # seconds per call
WRITE_BATCH = 500  # entities per call, which takes 64 MB
QUERY_BATCH = 64
PAGE = 4000  # entities per query
MAX_HITS = 16384  # of a Milvus search
Item = TypeVar("Item")


class MilvusAddress(NamedTuple):
    """`http://[user:password@]host:19530[/NAME][?index=hnsw]`, or a `.db` file of Milvus Lite."""

    uri: str
    name: str = COLLECTION
    index_type: str = "FLAT"
    token: str = ""

    @property
    def is_file(self) -> bool:
        return "://" not in self.uri

    @classmethod
    def parse(cls, address: str) -> MilvusAddress:
        if "://" not in address:
            return cls(str(Path(address).expanduser()))
        url, visible = urlsplit(address), without_password(address)
        name = url.path.strip("/") or COLLECTION
        index_type = parse_qs(url.query).get("index", ["flat"])[0].upper()
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,200}", name) or not url.hostname:
            raise ValueError(
                f"'{visible}' is not an address of an index: use http://HOST:19530/NAME, "
                "where NAME has letters, digits and _"
            )
        if index_type not in INDEX_TYPES:
            choices = ", ".join(INDEX_TYPES).lower()
            raise ValueError(f"no index '{index_type.lower()}' in {visible}: {choices}")
        token = f"{url.username}:{url.password}" if url.username else ""
        uri = f"{url.scheme}://{url.hostname}:{url.port or 19530}"
        return cls(uri, name, index_type, token)

    def connect(self) -> MilvusConnection:
        """Connect; a file is created if it does not exist."""
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before the import: no messages on stderr
        milvus = require("pymilvus", extra="milvus")
        for logger in ("pymilvus", "milvus_lite"):  # they also print what they raise
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        with milvus_errors(self.uri):
            if not self.is_file:
                client = milvus.MilvusClient(uri=self.uri, token=self.token, timeout=TIMEOUT)
                return MilvusConnection(client, self.uri)
            require("milvus_lite", extra="milvus")
            Path(self.uri).parent.mkdir(parents=True, exist_ok=True)
            return MilvusConnection(milvus.MilvusClient(uri=self.uri), self.uri)


class MilvusConnection:
    """A `MilvusClient` whose errors are messages with the address."""

    def __init__(self, client: Any, where: str) -> None:
        self.client, self.where = client, where
        self.types = require("pymilvus", extra="milvus").DataType

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.client, name)

        def call(*args: Any, **options: Any) -> Any:
            with milvus_errors(self.where):
                return method(*args, **options)

        return call


@contextmanager
def milvus_errors(where: str) -> Iterator[None]:
    try:
        yield
    except require("pymilvus", extra="milvus").MilvusException as error:
        message = " ".join(str(error.message or error).split())[:200]
        is_locked = "lock" in message.lower() or "local milvus" in message.lower()
        if where.endswith(".db") and is_locked:
            message = "another process may have it open: Milvus Lite allows one at a time"
        raise OSError(f"Milvus at {where}: {message}") from error


def without_password(address: str) -> str:
    return re.sub("//[^/]*@", "//", address)


def _batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


class MilvusStore(Store):
    """A collection of Milvus; readers see changes at once."""

    fixed_description: ClassVar[bool] = True

    def __init__(
        self, client: MilvusConnection, where: str, name: str, description: IndexDescription
    ) -> None:
        self.client, self.where, self.name = client, without_password(where), name
        self.description = description
        self.expression, self.use_words = "", bool(description.words)

    @classmethod
    def accepts(cls, address: str) -> bool:
        return "://" in address or address.endswith(".db")

    @classmethod
    def find(cls, address: str) -> Self | None:
        parsed, where = MilvusAddress.parse(address), without_password(address)
        if parsed.is_file and not Path(parsed.uri).exists():  # connecting would create it
            return None
        client, name = parsed.connect(), parsed.name
        if not client.has_collection(name):
            return None
        collection = client.describe_collection(name)
        # Milvus Lite does not keep the description of a schema.
        stored = collection.get("properties", {}).get(PROPERTY) or collection["description"]
        try:
            description = IndexDescription(**json.loads(stored))
        except (ValueError, TypeError):
            raise IndexDamaged(
                f"the collection '{name}' at {where} is not an index of Cenote: name another"
            ) from None
        client.load_collection(name)
        return cls(client, address, name, description)

    @classmethod
    def open(cls, address: str | Path, description: IndexDescription | None = None) -> Self:
        address = str(address)
        store = cls.find(address)
        if store is not None:
            return store
        if description is None:
            raise ValueError(
                f"there is no index at {without_password(address)}: "
                "`cenote index PHOTOS -o ADDRESS` creates one"
            )
        parsed = MilvusAddress.parse(address)
        client = parsed.connect()
        _create_collection(client, parsed.name, description, parsed.index_type)
        return cls(client, address, parsed.name, description)

    def __len__(self) -> int:
        return int(self._query(self.expression, ["count(*)"])[0]["count(*)"])

    def select(self, filter: Filter) -> Self:
        view = copy.copy(self)
        view.expression = filter.milvus()
        return view

    def nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Search Milvus, which leaves the order of ties open: here they keep the lower row."""
        check_queries(queries, self.dim)
        parameters = {"metric_type": "IP", "params": {"ef": max(64, 2 * k)}}
        scores, rows = list[list[float]](), list[list[int]]()
        for group in queries.float().split(QUERY_BATCH):
            results = self.client.search(
                self.name,
                group.tolist(),
                self.expression,
                min(k, MAX_HITS),
                ["row"],
                parameters,
                consistency_level="Strong",
            )
            for hits in results:
                ranked = sorted((-hit["distance"], hit["entity"]["row"]) for hit in hits)
                scores.append([-distance for distance, _ in ranked])
                rows.append([row for _, row in ranked])
        shape = (len(queries), len(rows[0]) if rows else 0)
        return torch.tensor(scores).view(shape), torch.tensor(rows, dtype=torch.long).view(shape)

    def scan(self, vectors: Tensor) -> None:
        return None

    def vectors(self, rows: Tensor) -> Tensor:
        entities = self.by_row(rows.tolist(), ["vector"])
        return torch.tensor([entities[row]["vector"] for row in rows.tolist()]).view(-1, self.dim)

    def words(self, rows: Tensor) -> Tensor | None:
        if not self.use_words:
            return None
        entities = self.by_row(rows.tolist(), ["words"])
        ids = [list(entities[row]["words"]) for row in rows.tolist()]
        return torch.tensor(ids, dtype=torch.long)

    def drop_words(self) -> None:
        self.use_words = False

    def entries(self, rows: Tensor) -> list[ImageEntry]:
        entities = self.by_row(rows.tolist(), list(ImageEntry._fields))
        return [_entry_of(entities[row]) for row in rows.tolist()]

    def images(self) -> dict[str, IndexedImage]:
        entities = self._pages("", list(ImageEntry._fields))
        images = [IndexedImage(entity["row"], _entry_of(entity)) for entity in entities]
        return {image.entry.path: image for image in images}

    def sample(self, count: int) -> list[IndexedImage]:
        """Return all images of a small index: Milvus cannot jump to a row."""
        return [] if len(self) > 10 * count else list(self.images().values())

    def rows_with_digest(self, digest: str) -> list[int]:
        entities = self._query(f"digest == {json.dumps(digest)}", ["row"])
        return sorted(entity["row"] for entity in entities)

    def distinct_values(self, column: str) -> list[str]:
        """Read all images: Milvus has no list of values."""
        return sorted({entity[column] for entity in self._pages("", [column])} - {""})

    def moments(self) -> Moments:
        sums = None if self.expression else self.stored_sums()
        return (sums or self.compute_sums()).moments()

    def compute_sums(self) -> MomentSums:
        """Read all vectors."""
        sums = MomentSums(self.dim)
        for entities in _batches(self._pages(self.expression, ["vector"]), PAGE):
            sums.add(torch.tensor([entity["vector"] for entity in entities]))
        return sums

    def writer(self) -> MilvusWriter:
        return MilvusWriter(self)

    @property
    def sums_name(self) -> str:
        return f"{self.name}_sums"

    def stored_sums(self) -> MomentSums | None:
        """Return None if there are none, or if they are of another number of images."""
        rows = 2 * (self.dim + 1)
        if not self.client.has_collection(self.sums_name):
            return None
        self.client.load_collection(self.sums_name)
        entities = self.client.query(
            self.sums_name,
            filter="row >= 0",
            output_fields=["row", "vector", "images"],
            limit=rows,
            consistency_level="Strong",
        )
        counts = {entity["images"] for entity in entities}
        if len(entities) != rows or counts != {len(self)}:
            return None
        entities = sorted(entities, key=lambda entity: entity["row"])
        table = torch.tensor([entity["vector"] for entity in entities]).double()
        table = table[: self.dim + 1] + table[self.dim + 1 :]  # high and low halves
        sums = MomentSums(self.dim)
        sums.count, sums.first, sums.second = counts.pop(), table[0], table[1:]
        return sums

    def store_sums(self, sums: MomentSums, mark: int) -> None:
        table = torch.cat([sums.first[None], sums.second])
        high = table.float()
        rows = torch.cat([high, (table - high.double()).float()]).tolist()
        entities = [{"row": i, "vector": v, "images": sums.count} for i, v in enumerate(rows)]
        self.reset_sums(mark)
        for batch in _batches(entities, WRITE_BATCH):
            self.client.insert(self.sums_name, batch)

    def reset_sums(self, mark: int) -> None:
        """Replace the sums by the mark of a writer; they are valid again when all rows are."""
        _create_sums(self.client, self.sums_name, self.dim, mark)

    def read_mark(self) -> int | None:
        """Return the mark of the writer that last began to change the index, if any."""
        if not self.client.has_collection(self.sums_name):
            return None
        self.client.load_collection(self.sums_name)
        entities = self.client.query(
            self.sums_name,
            filter=f"row == {MARK_ROW}",
            output_fields=["images"],
            consistency_level="Strong",
        )
        return int(entities[0]["images"]) if entities else None

    def by_row(self, rows: Sequence[int], fields: list[str]) -> dict[int, dict[str, Any]]:
        """Return the entities of those rows that exist."""
        entities = dict[int, dict[str, Any]]()
        for page in _batches(dict.fromkeys(rows), PAGE):
            for entity in self._query(f"row in {page}", ["row", *fields]):
                entities[entity["row"]] = entity
        return entities

    def _query(self, expression: str, fields: list[str]) -> list[dict[str, Any]]:
        entities = self.client.query(
            self.name, filter=expression, output_fields=fields, consistency_level="Strong"
        )
        return list(entities)

    def _pages(self, expression: str, fields: list[str]) -> Iterator[dict[str, Any]]:
        pages = self.client.query_iterator(
            self.name,
            PAGE,
            filter=expression or "row >= 0",
            output_fields=["row", *fields],
            consistency_level="Strong",
        )
        with milvus_errors(self.where):
            while page := pages.next():
                yield from page
            pages.close()


class MilvusWriter(StoreWriter):
    """Changes a collection without a lock: Milvus orders the changes, marks protect the sums."""

    def __init__(self, store: MilvusStore) -> None:
        self.store, self.client, self.has_written = store, store.client, False
        self.mark = secrets.randbits(63)

    def __enter__(self) -> Self:
        # Before the sums are read: a writer in between is noticed.
        self.expected_mark = self.store.read_mark()
        self.sums = self.store.stored_sums()
        if self.sums is None and not len(self.store):
            self.sums = MomentSums(self.store.dim)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None or not self.has_written:
            return
        sums = self.sums or self.store.compute_sums()
        if self.store.read_mark() != self.mark:
            self.store.reset_sums(self.mark)  # another's sums may lack what was put here
        elif sums.count and sums.count == len(self.store):
            self.store.store_sums(sums, self.mark)

    def put(
        self, entries: Sequence[ImageEntry], vectors: Tensor, words: Tensor | None = None
    ) -> None:
        positions = {entry.path: i for i, entry in enumerate(entries)}  # of equal paths the last
        ids = torch.empty(len(entries), 0) if words is None else words
        entities = [
            entity_of(entries[i]) | {"vector": vectors[i].tolist(), "words": ids[i].int().tolist()}
            for i in positions.values()
        ]
        self._begin_change([entity["row"] for entity in entities])
        self._upsert(entities)
        if self.sums is not None:
            self.sums.add(vectors[list(positions.values())].float().cpu())

    def update(self, entries: Sequence[ImageEntry]) -> None:
        rows = [row_of(entry.path) for entry in entries]
        stored = self.store.by_row(rows, ["vector", "words"])
        pairs = zip(rows, entries, strict=True)
        self._upsert([stored[row] | entity_of(entry) for row, entry in pairs if row in stored])

    def remove(self, paths: Iterable[str]) -> int:
        rows = self._begin_change([row_of(path) for path in paths])
        for page in _batches(rows, PAGE):
            self.client.delete(self.store.name, ids=page)
        return len(rows)

    def _begin_change(self, rows: list[int]) -> list[int]:
        """Invalidate the stored sums, subtract these rows, and return those that exist."""
        stored = self.store.by_row(rows, ["vector"])
        mark = self.store.read_mark()
        if mark != self.expected_mark:  # another writer has changed the index
            self.sums = None
        if not self.has_written or mark != self.expected_mark:
            self.store.reset_sums(self.mark)
        self.has_written, self.expected_mark = True, self.mark
        if self.sums is not None and stored:
            vectors = [list(entity["vector"]) for entity in stored.values()]
            self.sums.add(torch.tensor(vectors), -1)
        return list(stored)

    def _upsert(self, entities: list[dict[str, Any]]) -> None:
        for batch in _batches(entities, WRITE_BATCH):
            self.client.upsert(self.store.name, batch)


def _create_collection(
    client: MilvusConnection, name: str, description: IndexDescription, index_type: str
) -> None:
    types, stored = client.types, json.dumps(description.asdict())
    fields: dict[str, dict[str, Any]] = {
        "words": {"datatype": types.ARRAY, "element_type": types.INT32, "max_capacity": 64},
        "date": {"datatype": types.DOUBLE},
        "attributes": {"datatype": types.JSON},
    }
    for text, length in TEXT_LENGTHS.items():
        fields[text] = {"datatype": types.VARCHAR, "max_length": length}
    fields |= {number: {"datatype": types.INT64} for number in NUMBERS}
    _create(client, name, description.dim, fields, index_type, {PROPERTY: stored})


def _create_sums(client: MilvusConnection, name: str, dim: int, mark: int) -> None:
    if client.has_collection(name):
        client.drop_collection(name)
    _create(client, name, dim, {"images": {"datatype": client.types.INT64}}, "FLAT", {})
    client.insert(name, [{"row": MARK_ROW, "vector": [0.0] * dim, "images": mark}])


def _create(
    client: MilvusConnection,
    name: str,
    dim: int,
    fields: dict[str, dict[str, Any]],
    index_type: str,
    properties: dict[str, str],
) -> None:
    """Create a collection of rows and vectors with more fields, and load it."""
    schema = client.create_schema(description=properties.get(PROPERTY, ""))
    schema.add_field("row", client.types.INT64, is_primary=True)
    schema.add_field("vector", client.types.FLOAT_VECTOR, dim=dim)
    for field, options in fields.items():
        schema.add_field(field, **options)
    client.create_collection(name, schema=schema, consistency_level="Strong", properties=properties)
    index = client.prepare_index_params()
    parameters = {"M": 32, "efConstruction": 200} if index_type == "HNSW" else {}
    index.add_index("vector", index_type=index_type, metric_type="IP", params=parameters)
    try:
        client.create_index(name, index)
    except OSError:
        # Milvus Lite reports that an index "already exists" that it has just created.
        if "vector" not in client.list_indexes(name):
            raise
    client.load_collection(name)


def row_of(path: str) -> int:
    """Return 63 bits of the path's digest: integers of Milvus are signed."""
    return int.from_bytes(digest_of(os.fsencode(path))[:8], "little") >> 1


def entity_of(entry: ImageEntry) -> dict[str, Any]:
    """Convert an entry; Milvus 2.3 has no null: None becomes an empty text."""
    entity: dict[str, Any] = {"row": row_of(entry.path)}
    for name, length in TEXT_LENGTHS.items():
        # UTF-8 of at most `length` bytes; a file name need not be text.
        encoded = os.fsencode(getattr(entry, name) or "")[:length]
        entity[name] = encoded.decode("utf-8", "backslashreplace")[:length]
    entity |= {name: int(getattr(entry, name)) for name in NUMBERS}
    return entity | {"date": float(entry.date), "attributes": dict(entry.attributes)}


def _entry_of(entity: dict[str, Any]) -> ImageEntry:
    empty = [name for name in ("label", "domain", "split", "caption") if not entity[name]]
    fields = {name: entity[name] for name in ImageEntry._fields}
    return ImageEntry(**fields | dict.fromkeys(empty))
